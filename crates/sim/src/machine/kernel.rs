//! The operating system of a simulated machine: tasks, cores that they share, and sockets.
//!
//! A task has a core until it gives way, sleeps, or is pushed aside by a task that was woken and asked
//! for short time slices, as a node's data thread does. Who gives way goes behind all that are ready on
//! its core (`sched_yield` under Linux's fair scheduler). Who is woken goes before them: on an idle core
//! if there is one, else on the core where it ran last. A core that has nothing to do takes a ready task
//! from the core that has most of them. Must not know what tasks are for.

use std::collections::VecDeque;

use tributary_wire::frame::Header;

use super::MachineError;
use super::costs::SystemCosts;
use crate::engine::{Agenda, Chance, Picos};

/// Names a socket: one end of a connection, where its owner reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketId(usize);

/// What a message says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// For a machine of the protocol; none between ranks of a host algorithm.
    pub(super) header: Option<Header>,
    pub(super) bytes: u32,
}

/// What a task does next: one system call, or a stretch of computation.
#[derive(Debug)]
pub(super) struct Stretch {
    cost: Picos,
    send: Option<(SocketId, Frame)>,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    GiveWay,
    Sleep,
    End,
}

impl Stretch {
    pub(super) fn work(cost: Picos) -> Self {
        Self { cost, send: None, then: Then::GoOn }
    }

    pub(super) fn sleep(cost: Picos) -> Self {
        Self { cost, send: None, then: Then::Sleep }
    }

    pub(super) fn give_way(cost: Picos) -> Self {
        Self { cost, send: None, then: Then::GiveWay }
    }

    pub(super) fn end() -> Self {
        Self { cost: Picos::ZERO, send: None, then: Then::End }
    }
}

/// A program: what a task does, one stretch after the other.
pub(super) trait Program {
    fn step(&mut self, calls: &mut Calls<'_>) -> Result<Stretch, MachineError>;
}

#[derive(Debug, Default)]
struct Socket {
    owner: usize,
    /// In the kernel, each with the core it was sent from.
    arrived: VecDeque<(usize, Frame)>,
    /// Read by the owner with an earlier one, and still in its buffer.
    buffered: VecDeque<Frame>,
}

struct Task {
    program: Box<dyn Program>,
    is_asleep: bool,
    has_ended: bool,
    /// Asks for short slices: goes before the running task when it is woken.
    is_urgent: bool,
    /// How many others have had its core since it last sent or took a frame.
    others: usize,
    core: usize,
}

#[derive(Default)]
struct Core {
    running: Option<usize>,
    /// Tasks that have run here, the latest first.
    latest: Vec<usize>,
    urgent: VecDeque<usize>,
    ready: VecDeque<usize>,
    stretch: Option<Stretch>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The running task of a core goes on.
    Step(u32),
    /// It is through with its stretch.
    Done(u32),
}

/// What tasks have asked of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Reads, those that found nothing included.
    pub(super) reads: u64,
    /// Frames sent.
    pub(super) sends: u64,
    /// Times that a task gave way.
    pub(super) yields: u64,
    /// Sleeping tasks woken.
    pub(super) wakes: u64,
    /// Times that a core went from one task to another.
    pub(super) switches: u64,
}

/// What came of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What each rank's operations took, in their order.
    pub(super) times: Vec<Vec<Picos>>,
    /// What all tasks asked of the kernel.
    #[cfg_attr(not(test), allow(dead_code, reason = "for comparison with what perf counts"))]
    pub(super) counts: Counts,
}

/// A simulated machine.
pub(super) struct Kernel {
    counts: Counts,
    agenda: Agenda<Event>,
    begun_at: Picos,
    costs: SystemCosts,
    chance: Chance,
    cores: Vec<Core>,
    tasks: Vec<Task>,
    sockets: Vec<Socket>,
    times: Vec<Vec<Picos>>,
}

/// What a task can ask of the machine.
pub(super) struct Calls<'a> {
    /// The time.
    pub(super) now: Picos,
    pub(super) costs: &'a SystemCosts,
    core: usize,
    others: &'a mut usize,
    sockets: &'a mut [Socket],
    /// Of each socket, whether its owner sleeps.
    owner_sleeps: &'a dyn Fn(usize) -> bool,
    times: &'a mut Vec<Picos>,
    counts: &'a mut Counts,
}

impl Calls<'_> {
    /// Reads from a socket: what that takes, and a frame if there is one. One read takes all that has
    /// arrived; what is left of it costs nothing more.
    pub(super) fn read(&mut self, socket: SocketId) -> (Picos, Option<Frame>) {
        let socket = &mut self.sockets[socket.0];
        if let Some(frame) = socket.buffered.pop_front() {
            return (Picos::ZERO, Some(frame));
        }
        let Some((from, frame)) = socket.arrived.pop_front() else {
            self.counts.reads += 1;
            return (self.costs.miss, None);
        };
        self.counts.reads += 1;
        let rest: u32 = socket.arrived.iter().map(|(_, frame)| frame.bytes).sum();
        socket.buffered.extend(socket.arrived.drain(..).map(|(_, frame)| frame));
        let mut cost = self.costs.receive.of(frame.bytes + rest) + self.warming();
        if from != self.core {
            cost += self.costs.remote;
        }
        (cost, Some(frame))
    }

    /// Sends a frame: the kernel carries it to the other end's socket before the call returns.
    pub(super) fn send(&mut self, socket: SocketId, frame: Frame) -> Stretch {
        let mut cost = self.costs.frame + self.costs.send.of(frame.bytes) + self.warming();
        self.counts.sends += 1;
        if (self.owner_sleeps)(self.sockets[socket.0].owner) {
            cost += self.costs.wake;
            self.counts.wakes += 1;
        }
        Stretch { cost, send: Some((socket, frame)), then: Then::GoOn }
    }

    /// Whether a socket has something to read.
    pub(super) fn has_input(&self, socket: SocketId) -> bool {
        let socket = &self.sockets[socket.0];
        !socket.arrived.is_empty() || !socket.buffered.is_empty()
    }

    /// Notes what an operation took.
    pub(super) fn note(&mut self, took: Picos) {
        self.times.push(took);
    }

    /// What the first work after a switch pays for caches that others have used.
    fn warming(&mut self) -> Picos {
        self.costs.warming(std::mem::take(self.others))
    }
}

impl Kernel {
    pub(super) fn new(costs: SystemCosts, seed: u64) -> Self {
        Self {
            counts: Counts::default(),
            agenda: Agenda::default(),
            begun_at: Picos::ZERO,
            cores: (0..costs.cores).map(|_| Core::default()).collect(),
            costs,
            chance: Chance::new(seed),
            tasks: Vec::new(),
            sockets: Vec::new(),
            times: Vec::new(),
        }
    }

    /// Cores that tasks share.
    pub(super) fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Machines that are added have been driven up to then: time goes on from there.
    pub(super) fn begin_at(&mut self, at: Picos) {
        self.begun_at = at;
    }

    /// Adds a socket that the task of that number reads.
    pub(super) fn add_socket(&mut self, owner: usize) -> SocketId {
        self.sockets.push(Socket { owner, ..Socket::default() });
        SocketId(self.sockets.len() - 1)
    }

    /// Adds a task, dealt out over the cores. One that is urgent sleeps at first.
    pub(super) fn add_task(&mut self, program: impl Program + 'static, is_urgent: bool) {
        let task = self.tasks.len();
        let core = task % self.cores.len();
        self.tasks.push(Task {
            program: Box::new(program),
            is_asleep: is_urgent,
            has_ended: false,
            is_urgent,
            others: 0,
            core,
        });
        self.times.push(Vec::new());
        if !is_urgent {
            self.cores[core].ready.push_back(task);
        }
    }

    /// Runs until nothing is left to happen; the times that the first `ranks` tasks noted.
    pub(super) fn run(mut self, ranks: usize) -> Result<Outcome, MachineError> {
        for core in 0..self.cores.len() {
            self.pick(core, self.begun_at);
        }
        while let Some(event) = self.agenda.take() {
            match event {
                Event::Step(core) => self.step(core as usize)?,
                Event::Done(core) => self.done(core as usize),
            }
        }
        let waiting = self.tasks[..ranks].iter().filter(|task| !task.has_ended).count();
        if waiting > 0 {
            return Err(MachineError::Stuck { waiting });
        }
        self.times.truncate(ranks);
        Ok(Outcome { times: self.times, counts: self.counts })
    }

    fn step(&mut self, core: usize) -> Result<(), MachineError> {
        let Some(index) = self.cores[core].running else { return Ok(()) };
        let sleeps: Vec<bool> = self.tasks.iter().map(|task| task.is_asleep).collect();
        let task = &mut self.tasks[index];
        let now = self.agenda.now().max(self.begun_at);
        let mut calls = Calls {
            now,
            costs: &self.costs,
            core,
            others: &mut task.others,
            sockets: &mut self.sockets,
            owner_sleeps: &|owner| sleeps[owner],
            times: &mut self.times[index],
            counts: &mut self.counts,
        };
        let stretch = task.program.step(&mut calls)?;
        let cost = self.jittered(stretch.cost);
        self.cores[core].stretch = Some(stretch);
        self.agenda.schedule(now + cost, Event::Done(core as u32));
        Ok(())
    }

    fn done(&mut self, core: usize) {
        let now = self.agenda.now();
        let task =
            self.cores[core].running.expect("a core that is done with a stretch runs a task");
        let stretch = self.cores[core].stretch.take().expect("a stretch ends once");
        if let Some((socket, frame)) = stretch.send {
            self.land(core, socket, frame, now);
        }
        let is_pushed_aside = !self.tasks[task].is_urgent && !self.cores[core].urgent.is_empty();
        match stretch.then {
            Then::GoOn if !is_pushed_aside => {
                self.agenda.schedule(now, Event::Step(core as u32));
                return;
            }
            Then::GoOn => self.cores[core].ready.push_front(task),
            Then::GiveWay => {
                self.counts.yields += 1;
                self.cores[core].ready.push_back(task);
            }
            Then::Sleep if self.has_input(task) => {
                self.agenda.schedule(now, Event::Step(core as u32));
                return;
            }
            Then::Sleep => self.tasks[task].is_asleep = true,
            Then::End => self.tasks[task].has_ended = true,
        }
        self.pick(core, now);
    }

    /// A frame is at its socket; its reader is woken if it sleeps.
    fn land(&mut self, from: usize, socket: SocketId, frame: Frame, now: Picos) {
        let Socket { owner, arrived, .. } = &mut self.sockets[socket.0];
        arrived.push_back((from, frame));
        let task = *owner;
        if !std::mem::take(&mut self.tasks[task].is_asleep) {
            return;
        }
        let last = self.tasks[task].core;
        let idle = |core: &usize| self.cores[*core].running.is_none();
        let found = Some(last).filter(idle).or_else(|| (0..self.cores.len()).find(idle));
        let core = found.unwrap_or(last);
        if self.tasks[task].is_urgent {
            self.cores[core].urgent.push_back(task);
        } else {
            self.cores[core].ready.push_front(task);
        }
        if found.is_some() {
            self.pick(core, now + self.costs.wake_idle);
        }
    }

    /// Gives a core to whoever is next.
    fn pick(&mut self, core: usize, now: Picos) {
        let own = &mut self.cores[core];
        let next = own.urgent.pop_front().or_else(|| own.ready.pop_front());
        let next = next.or_else(|| self.take_over());
        self.cores[core].running = next;
        let Some(task) = next else { return };
        self.tasks[task].core = core;
        let mut at = now;
        let latest = &mut self.cores[core].latest;
        let others = latest.iter().position(|ran| *ran == task).unwrap_or(latest.len());
        if others > 0 || latest.is_empty() {
            latest.retain(|ran| *ran != task);
            latest.insert(0, task);
            self.tasks[task].others = self.tasks[task].others.max(others);
            self.counts.switches += 1;
            at += self.jittered(self.costs.switch);
        }
        self.agenda.schedule(at, Event::Step(core as u32));
    }

    /// A ready task of the core that has most of them.
    fn take_over(&mut self) -> Option<usize> {
        let fullest = self.cores.iter_mut().max_by_key(|core| core.ready.len())?;
        fullest.ready.pop_back()
    }

    fn has_input(&self, task: usize) -> bool {
        let mut own = self.sockets.iter().filter(|socket| socket.owner == task);
        own.any(|socket| !socket.arrived.is_empty() || !socket.buffered.is_empty())
    }

    fn jittered(&mut self, cost: Picos) -> Picos {
        if self.costs.jitter == 0.0 {
            return cost;
        }
        let factor = (1.0 + self.costs.jitter * self.chance.bell()).max(0.0);
        Picos((cost.0 as f64 * factor) as u64)
    }
}
