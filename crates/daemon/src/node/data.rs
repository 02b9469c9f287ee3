//! The event loop of the data path: one thread, no runtime, nothing allocated per frame.
//!
//! Owns the protocol machine, the arenas and every link, and moves frames between them. Decides
//! nothing about groups. What it waits for: frames and room on its links, connectors, orders of the
//! control conversation, deadlines.

mod datagrams;
mod doors;
mod groups;
mod installed;
mod traffic;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::os::fd::{AsFd, AsRawFd};

use tributary_protocol::Time;
use tributary_protocol::node::{Node, NodeConfig, PortId};
use tributary_transport::{Armed, DatagramSocket, Listener, ShmListener, TcpAcceptor};

use super::arenas::Arenas;
use super::commands::{Answers, Command};
use super::links::{AnyLink, Links, Stage};
use super::meters::{DataMeters, Tally};
use super::refusals::{Log, Reason};
use super::scheduling;
use crate::shutdown::Shutdown;
use groups::Removals;
use installed::Installed;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

const WAKER: Token = Token(0);
const TCP_DOOR: Token = Token(1);
const SHM_DOOR: Token = Token(2);
const DATAGRAMS: Token = Token(3);
/// Ports follow.
const FIRST_PORT: usize = 4;

/// With as many TCP links as this, or fewer, asking each socket costs less than asking the kernel
/// which of them has something.
const DIRECT_TCP_MAX: usize = 2;

/// Rounds over the links between two looks at the kernel's events and the clock.
const ROUNDS_PER_KERNEL_POLL: u32 = 32;

/// While frames come by datagram, the socket is asked itself in every round: one system call that
/// brings them, in the place of one that says that they are there. The kernel is asked about the
/// others once in so many rounds.
const ROUNDS_PER_KERNEL_POLL_LED: u32 = 4;

/// Rounds over the links between two updates of the counters that others read.
const ROUNDS_PER_PUBLISH: u32 = 4096;

/// Once asked to stop: how long the last words may take to go out.
const STOP_WITHIN: Duration = Duration::from_millis(300);

/// How long links may stay whose last word is said, for it to go out.
const LINGER: Duration = Duration::from_secs(2);

/// What the loop is made with.
pub(super) struct DataOptions {
    pub(super) machine: NodeConfig,
    pub(super) links_max: usize,
    pub(super) arena_bytes_max: u64,
    pub(super) join_within: Duration,
    pub(super) spin: Duration,
    /// Longer segments go up over links.
    pub(super) datagram_payload_max_bytes: u32,
}

/// The event loop.
pub(super) struct DataLoop {
    machine: Node,
    arenas: Arenas,
    links: Links,
    tcp: TcpAcceptor,
    shm: Option<ShmListener>,
    datagrams: Option<DatagramSocket>,
    /// The kernel said that there may be datagrams.
    datagrams_hot: bool,
    /// What came last came by datagram.
    datagrams_lead: bool,
    /// The kernel had no room for more of them.
    datagrams_full: bool,
    /// A batch is being made: what is queued goes out when it is whole.
    holds_back: bool,
    /// Where groups' results are multicast, by group id.
    multicast: Vec<Option<SocketAddr>>,
    datagram_payload_max_bytes: u32,
    /// Accepting goes on then; a connector may be waiting now.
    accept_at: Option<Instant>,
    poll: Poll,
    /// Held here too: a waker that is dropped takes its last call back.
    _waker: Arc<Waker>,
    commands: Receiver<Command>,
    answers: Answers,
    installed: Installed,
    removals: Removals,
    clock: Instant,
    spin: Duration,
    tally: Tally,
    meters: DataMeters,
    log: Log,
    shutdown: Shutdown,
}

/// What the loop is connected to.
pub(super) struct Surroundings {
    pub(super) poll: Poll,
    pub(super) waker: Arc<Waker>,
    pub(super) tcp: TcpAcceptor,
    pub(super) shm: Option<ShmListener>,
    pub(super) datagrams: Option<DatagramSocket>,
    pub(super) commands: Receiver<Command>,
    pub(super) answers: Answers,
    pub(super) meters: DataMeters,
    pub(super) shutdown: Shutdown,
}

/// The poll that a loop will sleep in, and what wakes it from outside.
pub(super) fn poll_and_waker() -> io::Result<(Poll, Arc<Waker>)> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
    Ok((poll, waker))
}

impl DataLoop {
    /// A loop that serves no group yet.
    pub(super) fn new(options: &DataOptions, around: Surroundings) -> io::Result<Self> {
        let Surroundings { poll, waker, tcp, shm, datagrams, commands, answers, meters, shutdown } =
            around;
        let registry = poll.registry();
        registry.register(&mut SourceFd(&tcp.as_fd().as_raw_fd()), TCP_DOOR, Interest::READABLE)?;
        if let Some(shm) = &shm {
            let descriptor = shm.as_fd().as_raw_fd();
            registry.register(&mut SourceFd(&descriptor), SHM_DOOR, Interest::READABLE)?;
        }
        let mut machine = Node::new(options.machine);
        if let Some(socket) = &datagrams {
            let descriptor = socket.as_fd().as_raw_fd();
            let interest = Interest::READABLE | Interest::WRITABLE;
            registry.register(&mut SourceFd(&descriptor), DATAGRAMS, interest)?;
            let address = socket.address().map_err(io::Error::other)?;
            if let Ok(port) = address.port().try_into() {
                machine.take_datagrams(port, options.datagram_payload_max_bytes);
            }
        }
        let clock = Instant::now();
        Ok(Self {
            machine,
            arenas: Arenas::new(options.arena_bytes_max),
            links: Links::new(options.links_max, options.join_within, LINGER),
            tcp,
            shm,
            datagrams,
            datagrams_hot: true,
            datagrams_lead: false,
            datagrams_full: false,
            holds_back: false,
            multicast: Vec::new(),
            datagram_payload_max_bytes: options.datagram_payload_max_bytes,
            accept_at: Some(clock),
            poll,
            _waker: waker,
            commands,
            answers,
            installed: Installed::default(),
            removals: Removals::default(),
            clock,
            spin: options.spin,
            tally: Tally::default(),
            meters,
            log: Log::new(clock),
            shutdown,
        })
    }

    /// Runs until asked to stop; then tells every group, and returns.
    pub(super) fn run(mut self) -> io::Result<()> {
        if let Err(error) = scheduling::ask_for_short_slices() {
            tracing::info!("{error}");
        }
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            self.work_until_idle(&mut events)?;
            self.publish();
            // Asked for right before sleeping: the wake-up that came with the wish to stop may have
            // been taken while there was work.
            if self.shutdown.is_requested() {
                return self.stop(&mut events);
            }
            self.sleep(&mut events, None)?;
            self.serve_deadlines();
        }
    }

    /// Serves links, connectors and orders until nothing has happened for the spin time.
    fn work_until_idle(&mut self, events: &mut Events) -> io::Result<()> {
        let mut idle_since: Option<Instant> = None;
        let mut rounds = 0_u32;
        loop {
            rounds = rounds.wrapping_add(1);
            let mut worked = self.serve_sockets();
            if !worked && self.spin.is_zero() {
                return Ok(());
            }
            // A round over sockets costs system calls anyway; one over rings costs next to nothing.
            let has_sockets = self.links.tcp_count() > 0 || self.datagrams.is_some();
            let asks_kernel = !worked && has_sockets;
            let is_look_due = asks_kernel || rounds.is_multiple_of(ROUNDS_PER_KERNEL_POLL);
            if is_look_due {
                if !self.datagrams_lead || rounds.is_multiple_of(ROUNDS_PER_KERNEL_POLL_LED) {
                    worked |= self.kernel_events(events, Some(Duration::ZERO))?;
                }
                worked |= self.serve_deadlines();
            }
            if rounds.is_multiple_of(ROUNDS_PER_PUBLISH) {
                self.publish();
                if self.shutdown.is_requested() {
                    return Ok(());
                }
            }
            if worked {
                idle_since = None;
            } else if is_look_due {
                let now = Instant::now();
                if now - *idle_since.get_or_insert(now) >= self.spin {
                    return Ok(());
                }
                // Whoever this loop waits for may be waiting for this very core.
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Goes once over everything that frames come from. True if any of it had something.
    fn serve_sockets(&mut self) -> bool {
        // Where the loop sleeps at once, the kernel has said whether there is anything.
        self.datagrams_hot |= self.datagrams_lead && !self.spin.is_zero();
        let by_datagram = self.serve_datagrams();
        let by_link = self.serve_links();
        if by_datagram || by_link {
            self.datagrams_lead = by_datagram;
        }
        by_datagram || by_link
    }

    /// Sleeps until something happens, or `limit`, or the next deadline.
    fn sleep(&mut self, events: &mut Events, limit: Option<Instant>) -> io::Result<()> {
        let now = Instant::now();
        let deadline = [self.next_deadline(), limit].into_iter().flatten().min();
        let left = deadline.map(|at| at.saturating_duration_since(now));
        if left == Some(Duration::ZERO) || !self.arm_links() {
            return Ok(());
        }
        let outcome = self.kernel_events(events, left);
        self.disarm_links();
        outcome.map(drop)
    }

    /// Prepares every link for sleep; false, with all of them awake, if one has something already.
    fn arm_links(&mut self) -> bool {
        if self.datagrams_hot {
            return false;
        }
        for port in 0..self.links.ports_end() {
            let Some(entry) = self.links.entry(PortId(port)) else { continue };
            let is_ready = match &mut entry.link {
                // Watched for edges, and drained since the last one: nothing to prepare.
                AnyLink::Tcp(_) => entry.is_hot,
                AnyLink::Shm(_) => entry.link.arm() == Armed::Ready,
            };
            if is_ready {
                self.disarm_links();
                return false;
            }
        }
        true
    }

    fn disarm_links(&mut self) {
        for port in 0..self.links.ports_end() {
            let Some(entry) = self.links.entry(PortId(port)) else { continue };
            // The others were disarmed when their descriptors woke the loop.
            if !entry.is_hot {
                entry.link.disarm();
            }
        }
    }

    /// Takes what the kernel has to say, waiting for it at most `timeout`. True if it was anything.
    fn kernel_events(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        match self.poll.poll(events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(error),
        }
        for event in events.iter() {
            match event.token() {
                WAKER => self.take_commands(),
                TCP_DOOR | SHM_DOOR => self.accept_at = Some(self.clock),
                DATAGRAMS => {
                    self.datagrams_hot |= event.is_readable() || event.is_error();
                    if event.is_writable() {
                        self.on_datagram_room();
                    }
                }
                Token(token) => {
                    if let Some(entry) = self.links.entry(PortId((token - FIRST_PORT) as u32)) {
                        entry.is_hot = true;
                        // The edge is spent, whether or not this loop was asleep: the link has to
                        // take note of what is on its descriptor, above all that the peer is gone.
                        entry.link.disarm();
                    }
                }
            }
        }
        Ok(!events.is_empty())
    }

    /// Does what is due. True if it was anything.
    fn serve_deadlines(&mut self) -> bool {
        let now = Instant::now();
        let mut worked = false;
        let doors_due = self.shm.as_ref().and_then(Listener::deadline).is_some_and(|at| at <= now);
        if doors_due || self.accept_at.is_some_and(|at| at <= now) {
            worked |= self.accept(now);
        }
        while let Some((port, stage)) = self.links.pop_overdue(now) {
            if stage == Stage::Unjoined {
                self.tally.refuse(Reason::NeverJoined);
                self.log.refused(now, Reason::NeverJoined, &"nobody joined a group over the link");
            }
            self.close(port);
            worked = true;
        }
        worked |= self.remove_due(now);
        let time = self.time(now);
        if self.machine.poll_timeout().is_some_and(|due| due <= time) {
            self.machine.handle_timeout(time);
            worked = true;
        }
        self.drain();
        worked
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        let machine =
            self.machine.poll_timeout().map(|due| self.clock + Duration::from_nanos(due.0));
        let doors = self.shm.as_ref().and_then(Listener::deadline);
        let links = self.links.next_deadline();
        [machine, doors, links, self.removals.next_due(), self.accept_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Install(install, link) => self.install(*install, link),
                Command::Remove(group, epoch) => self.removals.add(group, epoch),
                Command::RemoveAll(done) => {
                    self.remove_all();
                    // Nobody waits any more if the whole node is about to stop.
                    let _ = done.send(());
                }
            }
        }
    }

    /// Says a last word to every group and gives it a moment to go out.
    fn stop(&mut self, events: &mut Events) -> io::Result<()> {
        self.remove_all();
        let until = Instant::now() + STOP_WITHIN;
        while self.links.count() > 0 && Instant::now() < until {
            if !self.serve_links() && !self.serve_datagrams() {
                self.sleep(events, Some(until))?;
                self.serve_deadlines();
            }
        }
        self.publish();
        Ok(())
    }

    pub(super) fn time(&self, now: Instant) -> Time {
        let passed = now.saturating_duration_since(self.clock);
        Time(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    }

    fn publish(&mut self) {
        self.tally.links = self.links.count() as u64;
        self.tally.arena_bytes = self.arenas.bytes_used();
        self.tally.stream_arena_bytes = self.arenas.stream_bytes();
        self.tally.streams_waiting = self.machine.streams_waiting() as u64;
        self.tally.groups = self.installed.count() as u64;
        self.tally.osos = u64::from(self.machine.osos_used());
        self.tally.datagrams_garbage =
            self.datagrams.as_ref().map_or(0, |socket| socket.stats().garbage);
        self.meters.publish(&self.tally, self.machine.stats());
    }
}
