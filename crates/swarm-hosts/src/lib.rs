//! Ranks on several hosts, from the set-up of communicators to their end, while some of them die or leave.
//!
//! A second, smaller system of each seed, beside the one with aggregators and a manager. It plays what lies before and
//! below a tree: set-up, the ranks of a host, links that nobody has made yet, descriptors that workers inherit, and the
//! order of two communicators' streams. What is decided there is the product's: crate [`tributary_waits`], and
//! [`tributary_inheritance::Marks`]. Connections, shared memory, the tree's aggregator and time are modelled.
//!
//! A third system, [`levels`], has hosts in replicated groups.
//!
//! The promise: a rank that waits gets its result, or hears within a second that somebody is gone, and who.

#![forbid(unsafe_code)]

mod aggregator;
mod connections;
mod direct;
mod frame;
mod kernel;
pub mod levels;
mod links;
mod operations;
mod plan;
mod promise;
mod seats;
mod set_up;
mod states;
mod system;
mod trace;
mod tree;
mod violation;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use connections::{Connections, Files};
use plan::{Act, Carry, FateKind, Plan};
use seats::{End, Phase, Seat, SeatId, Shared};
use states::{BEFORE_LINK, IN_SET_UP, LEADS_NOBODY, LEAVE, STREAMING, STREAMS, WITH_WORKER};
use system::{Communicator, Item, Process, System};
use trace::Trace;
use tree::Tree;

pub use states::STATE_NAMES;
pub use violation::Violation;

/// How often a rank that waits looks after the others: `shm-collectives::PEER_CHECK_INTERVAL`.
const LOOK_NS: u64 = 20_000_000;
/// More than any run takes in which everybody hears in time.
const HORIZON_NS: u64 = 30_000_000_000;

/// What came of a run.
#[derive(Default)]
pub struct Report {
    /// What must not happen, if it has.
    pub violation: Option<Violation>,
    /// Hash of what arrived where, and when.
    pub trace_hash: u64,
    /// Events that were processed.
    pub steps: u64,
    /// How often each state of [`STATE_NAMES`] was come to.
    pub states: [u64; STATE_NAMES.len()],
    /// What was drawn, and what happened, if that is kept.
    pub lines: Vec<String>,
}

/// Runs the system of a seed.
#[must_use]
pub fn run(seed: u64, keeps_trace: bool) -> Report {
    let plan = Plan::draw(seed);
    let mut system = System::new(&plan, keeps_trace);
    system.run();
    let hash = system.trace.hash();
    let told = system.trace.into_lines().into_iter();
    let drawn = keeps_trace.then(|| format!("{plan:#?}")).into_iter();
    Report {
        violation: system.violation,
        trace_hash: hash,
        steps: system.steps,
        states: system.states,
        lines: drawn.chain(told).collect(),
    }
}

impl<'a> System<'a> {
    fn new(plan: &'a Plan, keeps_trace: bool) -> Self {
        let process = |own: &usize| Process {
            is_alive: true,
            files: Files::new(*own),
            act: 0,
            is_going: false,
            is_held: false,
            is_polling: false,
        };
        let communicator = |group: &plan::Group| Communicator {
            seats: (0..)
                .zip(&group.hosts)
                .flat_map(|(host, ranks)| {
                    ranks.iter().enumerate().map(move |(local, rank)| Seat::new(*rank, host, local))
                })
                .collect(),
            hosts: group.hosts.iter().map(|ranks| Shared::new(ranks.len())).collect(),
            has_tree: !matches!(group.operations[0], Carry::Links(_)),
            gone: Vec::new(),
        };
        let mut system = Self {
            plan,
            now: 0,
            random: Pcg64::seed_from_u64(!plan.seed),
            trace: Trace::new(keeps_trace),
            agenda: BinaryHeap::new(),
            entries: 0,
            steps: 0,
            processes: plan.own_files.iter().map(process).collect(),
            communicators: plan.communicators.iter().map(communicator).collect(),
            connections: Connections::default(),
            workers: Vec::new(),
            stranded: Vec::new(),
            tree: Tree::default(),
            has_met: vec![false; plan.fates.len()],
            states: [0; STATE_NAMES.len()],
            violation: None,
        };
        for (number, group) in (0..).zip(&plan.communicators) {
            system.tree.add_group(group.hosts.len());
            system.connect_hub(number);
        }
        for rank in 0..plan.programs.len() as u32 {
            system.go_on(rank);
        }
        system
    }

    fn run(&mut self) {
        while self.violation.is_none() {
            let Some(Reverse((at, _, item))) = self.agenda.pop() else { break };
            if at > HORIZON_NS {
                break;
            }
            (self.now, self.steps) = (at, self.steps + 1);
            self.handle(item);
        }
        self.check_over();
    }

    fn handle(&mut self, item: Item) {
        match item {
            Item::Arrive { to } => self.arrive(to),
            Item::Knock { to, place } => self.knock(to, place),
            Item::Told { place } => self.end_told(place),
            Item::Go { rank } => self.go(rank),
            Item::Poll { rank } => {
                self.processes[rank as usize].is_polling = false;
                self.poll(rank, false);
            }
            Item::Look { rank } => self.look_around(rank),
            Item::Fate { index } => self.meet_fate(index),
            Item::WorkerEnds { worker } => self.end_worker(worker),
        }
    }

    /// A rank looks at all that it waits for, and its program goes on if it can.
    fn poll(&mut self, rank: u32, looks: bool) {
        if !self.processes[rank as usize].is_alive {
            return;
        }
        for id in self.seats_of_rank(rank) {
            self.advance(id, looks);
        }
        self.go_on(rank);
    }

    fn wake(&mut self, rank: u32) {
        if !std::mem::replace(&mut self.processes[rank as usize].is_polling, true) {
            let at = self.now + self.random.random_range(1..2_000);
            self.put(at, Item::Poll { rank });
        }
    }

    fn look_around(&mut self, rank: u32) {
        let ids = self.seats_of_rank(rank);
        let is_waiting = |id: &SeatId, system: &mut Self| system.seat(*id).waits_since.is_some();
        if !self.processes[rank as usize].is_alive {
            return;
        }
        self.poll(rank, true);
        for id in &ids {
            self.check_promise(*id);
        }
        if ids.iter().any(|id| is_waiting(id, self)) {
            self.put(self.now + LOOK_NS, Item::Look { rank });
        }
    }

    /// The program's next step is due, unless it waits.
    fn go_on(&mut self, rank: u32) {
        let plan = self.plan;
        let process = &self.processes[rank as usize];
        let Some(act) = plan.programs[rank as usize].get(process.act) else { return };
        let waits = match *act {
            Act::Finish(number) => {
                let id = self.seat_of(rank, number);
                self.seat(id).operation.is_some()
            }
            _ => self.is_setting_up(rank),
        };
        if !waits && !std::mem::replace(&mut self.processes[rank as usize].is_going, true) {
            let think_ns = match self.random.random_range(0..1000) {
                0..4 => 4_000_000_000,
                4..20 => 300_000_000,
                _ => self.plan.think_ns_max,
            };
            let at = self.now + self.random.random_range(1..=think_ns);
            self.put(at, Item::Go { rank });
        }
    }

    fn is_setting_up(&mut self, rank: u32) -> bool {
        let ids = self.seats_of_rank(rank);
        ids.into_iter().any(|id| matches!(self.seat(id).phase, Phase::SettingUp { .. }))
    }

    /// The program does its next step.
    fn go(&mut self, rank: u32) {
        let plan = self.plan;
        let process = &mut self.processes[rank as usize];
        if !process.is_alive {
            return;
        }
        let number = process.act;
        let mut leaves = false;
        for (index, fate) in plan.fates.iter().enumerate() {
            if (fate.rank, fate.act) == (rank, number) && !self.has_met[index] {
                self.has_met[index] = true;
                leaves |= matches!(fate.kind, FateKind::Leaves(_));
                self.put(self.now + fate.after_ns, Item::Fate { index });
            }
        }
        if leaves {
            // The step comes behind that.
            self.processes[rank as usize].is_held = true;
            return;
        }
        let process = &mut self.processes[rank as usize];
        process.is_going = false;
        process.act += 1;
        let act = plan.programs[rank as usize][number];
        self.trace.note(self.now, || format!("rank {rank}: {act:?}"));
        match act {
            Act::SetUp(communicator) => self.begin_set_up(self.seat_of(rank, communicator)),
            Act::Begin(communicator) => {
                let id = self.seat_of(rank, communicator);
                self.note_streams(id);
                self.begin(id);
            }
            Act::Finish(_) => {}
            Act::Leave(communicator) => self.leave(self.seat_of(rank, communicator)),
            Act::File { opens } => self.use_file(rank, opens),
        }
        if matches!(act, Act::SetUp(_) | Act::Begin(_)) {
            self.put(self.now + LOOK_NS, Item::Look { rank });
        }
        self.poll(rank, false);
    }

    fn meet_fate(&mut self, index: usize) {
        let fate = self.plan.fates[index];
        if !self.processes[fate.rank as usize].is_alive {
            return;
        }
        self.trace.note(self.now, || format!("rank {}: {:?}", fate.rank, fate.kind));
        match fate.kind {
            FateKind::Dies => self.die(fate.rank),
            FateKind::Forks => self.fork(fate.rank),
            FateKind::Leaves(communicator) => {
                let id = self.seat_of(fate.rank, communicator);
                let others = &self.communicators[communicator as usize].seats;
                let is_waited_for = others.iter().any(|seat| seat.waits_since.is_some());
                self.states[LEAVE] += u64::from(is_waited_for);
                self.leave(id);
                let process = &mut self.processes[fate.rank as usize];
                if std::mem::take(&mut process.is_held) {
                    process.is_going = false;
                    self.go_on(fate.rank);
                }
            }
        }
    }

    fn die(&mut self, rank: u32) {
        self.processes[rank as usize].is_alive = false;
        for id in self.seats_of_rank(rank) {
            self.note_death(id);
            if !self.seat(id).is_over() {
                self.lose(id);
                self.end_seat(id, End::Dead);
            }
        }
        self.close_all(rank);
    }

    /// A rank is gone that its communicator may still need.
    fn lose(&mut self, id: SeatId) {
        let (now, rank) = (self.now, self.seat(id).rank);
        self.communicators[id.0 as usize].gone.push((rank, now));
    }

    fn note_death(&mut self, id: SeatId) {
        let (phase, place) = (self.seat(id).phase, (id.0, self.seat(id).host));
        let leads = self.seat(id).local == 0;
        let is_streaming = self.is_streaming(id);
        let communicator = &self.communicators[id.0 as usize];
        let leader = communicator.hosts[place.1 as usize].leader.as_ref();
        let is_linkless =
            leads && !communicator.has_tree && leader.is_some_and(|leader| !leader.has_link());
        let rank = communicator.seats[id.1].rank;
        let has_worker = self.workers.iter().any(|worker| worker.is_of(rank));
        let is_in_use = phase == Phase::Ready;
        self.states[BEFORE_LINK] += u64::from(is_in_use && is_linkless);
        self.states[IN_SET_UP] += u64::from(matches!(phase, Phase::SettingUp { .. }));
        self.states[LEADS_NOBODY] += u64::from(is_in_use && !leads);
        self.states[WITH_WORKER] += u64::from(is_in_use && has_worker);
        self.states[STREAMING] += u64::from(is_streaming);
    }

    fn is_streaming(&self, (communicator, seat): SeatId) -> bool {
        self.communicators[communicator as usize].seats[seat].is_streaming()
    }

    /// Whether a rank begins a stream on one communicator while another rank of its host is in one on another.
    fn note_streams(&mut self, id: SeatId) {
        let group = &self.plan.communicators[id.0 as usize];
        let seat = &self.communicators[id.0 as usize].seats[id.1];
        let next = group.operations.get(seat.begun);
        let own = group.hosts[seat.host as usize].clone();
        let others = (0..).zip(&self.communicators).filter(|(number, _)| *number != id.0);
        let is_crossed = others
            .flat_map(|(_, other)| &other.seats)
            .any(|other| other.is_streaming() && own.contains(&other.rank));
        let is_stream = matches!(next, Some(Carry::Stream { .. }));
        self.states[STREAMS] += u64::from(is_stream && is_crossed);
    }
}

#[cfg(all(test, not(feature = "planted-bugs")))]
mod tests {
    use super::*;

    /// Seeds of this system alone; `tests/seeds.rs` runs both.
    const SEEDS: std::ops::Range<u64> = 0..4_000;

    #[test]
    fn a_rank_that_waits_hears_in_every_state_of_the_others() {
        let mut states = [0; STATE_NAMES.len()];
        for seed in SEEDS {
            let report = run(seed, false);
            if let Some(violation) = report.violation {
                panic!("seed {seed}: {violation}\n{}", run(seed, true).lines.join("\n"));
            }
            for (sum, times) in states.iter_mut().zip(report.states) {
                *sum += times;
            }
        }
        for (name, times) in STATE_NAMES.iter().zip(states) {
            assert!(times > 0, "no {name} in {SEEDS:?}");
        }
        println!("{states:?}");
    }
}
