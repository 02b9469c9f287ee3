//! The event loop of the data path: one thread, no runtime, nothing allocated per frame.
//!
//! Owns the protocol machine, the arenas and every link, and moves frames between them. Decides
//! nothing about groups. What it waits for: frames and room on its links, connectors, orders of the
//! control conversation, deadlines.

mod accept;
mod datagrams;
mod groups;
mod installed;
mod traffic;
mod waiting;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use std::os::fd::{AsFd, AsRawFd};

use tributary_protocol::Time;
use tributary_protocol::node::{Node, NodeConfig};
use tributary_transport::{DatagramSocket, ShmListener, TcpAcceptor};

use super::arenas::Arenas;
use super::commands::{Answers, Command};
use super::links::Links;
use super::meters::{Counters, DataMeters};
use super::refusals::Log;
use super::scheduling;
use crate::shutdown::Shutdown;
use groups::Removals;
use installed::Installed;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

const WAKER: Token = Token(0);
const TCP_LISTENER: Token = Token(1);
const SHM_LISTENER: Token = Token(2);
const DATAGRAMS: Token = Token(3);
/// Ports follow.
const FIRST_PORT: usize = 4;

/// With as many TCP links as this, or fewer, asking each socket costs less than asking the kernel
/// which of them has something.
const DIRECT_TCP_MAX: usize = 2;

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
    datagrams_signalled: bool,
    /// What came last came by datagram.
    datagrams_active: bool,
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
    counters: Counters,
    meters: DataMeters,
    log: Log,
    shutdown: Shutdown,
}

/// What the loop is connected to.
pub(super) struct Resources {
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
    pub(super) fn new(options: &DataOptions, resources: Resources) -> io::Result<Self> {
        let Resources { poll, waker, tcp, shm, datagrams, commands, answers, meters, shutdown } =
            resources;
        let registry = poll.registry();
        registry.register(
            &mut SourceFd(&tcp.as_fd().as_raw_fd()),
            TCP_LISTENER,
            Interest::READABLE,
        )?;
        if let Some(shm) = &shm {
            let descriptor = shm.as_fd().as_raw_fd();
            registry.register(&mut SourceFd(&descriptor), SHM_LISTENER, Interest::READABLE)?;
        }
        let mut machine = Node::new(options.machine);
        if let Some(socket) = &datagrams {
            let descriptor = socket.as_fd().as_raw_fd();
            registry.register(&mut SourceFd(&descriptor), DATAGRAMS, Interest::READABLE)?;
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
            datagrams_signalled: true,
            datagrams_active: false,
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
            counters: Counters::default(),
            meters,
            log: Log::new(clock),
            shutdown,
        })
    }

    /// Runs until asked to stop; then tells every group, and returns.
    pub(super) fn run(mut self) -> io::Result<()> {
        // Whoever polls is never woken, and hands its core over by yielding: with a shorter slice than
        // the ranks have it would get it back before they have run.
        if self.spin.is_zero()
            && let Err(error) = scheduling::ask_for_short_slices()
        {
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
        time_since(self.clock, now)
    }

    fn publish(&mut self) {
        self.counters.links = self.links.count() as u64;
        self.counters.arena_bytes = self.arenas.bytes_used();
        self.counters.stream_arena_bytes = self.arenas.stream_bytes();
        self.counters.streams_waiting = self.machine.streams_waiting() as u64;
        self.counters.groups = self.installed.count() as u64;
        self.counters.osos = u64::from(self.machine.osos_used());
        self.counters.datagrams_garbage =
            self.datagrams.as_ref().map_or(0, |socket| socket.stats().garbage);
        self.meters.publish(&self.counters, self.machine.stats());
    }
}

/// `now`, as the machine counts it: from when the loop was made.
fn time_since(clock: Instant, now: Instant) -> Time {
    let passed = now.saturating_duration_since(clock);
    Time(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
}
