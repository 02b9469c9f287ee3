//! The event loop of the data path: one thread, no runtime, no allocation per frame.
//!
//! Owns the protocol machine, the arenas and every link, and moves frames between them. Decides
//! nothing about groups. It waits for frames and room on its links, connectors, orders of the
//! control session, and deadlines.

mod accept;
mod datagrams;
mod groups;
mod installed;
mod kernel;
mod removals;
mod traffic;
mod unknown_senders;
mod waiting;
mod waits;

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
use tributary_wire::GroupId;

use super::arenas::Arenas;
use super::commands::{Answers, Command};
use super::counters::Counters;
use super::kernel::KernelPath;
use super::links::Links;
use super::meters::DataMeters;
use super::scheduling;
use crate::shutdown::Shutdown;
use installed::Installed;
use removals::Removals;
use unknown_senders::UnknownSenders;
use waits::Waits;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

const WAKER: Token = Token(0);
const TCP_LISTENER: Token = Token(1);
const SHM_LISTENER: Token = Token(2);
const DATAGRAMS: Token = Token(3);
/// Ports follow.
const FIRST_PORT: usize = 4;

/// With up to this many TCP links, polling each socket costs less than asking the kernel which of
/// them has something.
const DIRECT_TCP_MAX: usize = 2;

/// Timeout of the graceful close of all links when the aggregator stops.
const STOP_WITHIN: Duration = Duration::from_millis(300);

/// How long a lingering link may take to deliver its final frames.
const LINGER: Duration = Duration::from_secs(2);

/// Options of the loop.
pub(super) struct DataOptions {
    pub(super) machine: NodeConfig,
    pub(super) links_max: usize,
    pub(super) arena_bytes_max: u64,
    pub(super) join_within: Duration,
    pub(super) spin: Duration,
    /// Longer segments go to the parent over its link.
    pub(super) datagram_payload_max_bytes: u32,
}

/// The event loop.
pub(super) struct DataLoop {
    machine: Node,
    kernel: Option<KernelPath>,
    arenas: Arenas,
    links: Links,
    tcp: TcpAcceptor,
    shm: Option<ShmListener>,
    datagrams: Option<DatagramSocket>,
    /// The kernel has signalled that there may be datagrams.
    datagrams_signalled: bool,
    /// The last frames came by datagram.
    datagrams_active: bool,
    /// The kernel had no room for more datagrams.
    datagrams_full: bool,
    unknown_senders: UnknownSenders,
    /// A batch is being made: queued datagrams are sent when it is complete.
    holds_back: bool,
    /// Where groups' results are multicast, by group id.
    multicast: Vec<Option<SocketAddr>>,
    datagram_payload_max_bytes: u32,
    /// When to accept next, if a connector may be waiting.
    accept_at: Option<Instant>,
    /// While the system lacks a resource: no accept before.
    accept_not_before: Instant,
    poll: Poll,
    /// Kept alive, because dropping a waker cancels its pending wake-up.
    _waker: Arc<Waker>,
    commands: Receiver<Command>,
    answers: Answers,
    installed: Installed,
    removals: Removals,
    waits: Waits,
    clock: Instant,
    spin: Duration,
    counters: Counters,
    meters: DataMeters,
    shutdown: Shutdown,
}

/// Sockets and channels of the loop.
pub(super) struct Resources {
    pub(super) poll: Poll,
    pub(super) waker: Arc<Waker>,
    pub(super) tcp: TcpAcceptor,
    pub(super) shm: Option<ShmListener>,
    pub(super) datagrams: Option<DatagramSocket>,
    pub(super) kernel: Option<KernelPath>,
    pub(super) commands: Receiver<Command>,
    pub(super) answers: Answers,
    pub(super) meters: DataMeters,
    pub(super) shutdown: Shutdown,
}

/// The poll that the loop sleeps in, and its waker.
pub(super) fn poll_and_waker() -> io::Result<(Poll, Arc<Waker>)> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
    Ok((poll, waker))
}

impl DataLoop {
    /// A loop that serves no group yet.
    pub(super) fn new(options: &DataOptions, resources: Resources) -> io::Result<Self> {
        let Resources {
            poll,
            waker,
            tcp,
            shm,
            datagrams,
            kernel,
            commands,
            answers,
            meters,
            shutdown,
        } = resources;
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
            kernel,
            arenas: Arenas::new(options.arena_bytes_max),
            links: Links::new(options.links_max, options.join_within, LINGER),
            tcp,
            shm,
            datagrams,
            datagrams_signalled: true,
            datagrams_active: false,
            datagrams_full: false,
            unknown_senders: UnknownSenders::default(),
            holds_back: false,
            multicast: Vec::new(),
            datagram_payload_max_bytes: options.datagram_payload_max_bytes,
            accept_at: Some(clock),
            accept_not_before: clock,
            poll,
            _waker: waker,
            commands,
            answers,
            installed: Installed::default(),
            removals: Removals::default(),
            waits: Waits::default(),
            clock,
            spin: options.spin,
            counters: Counters::default(),
            meters,
            shutdown,
        })
    }

    /// Runs until asked to stop, then aborts every group and closes gracefully.
    pub(super) fn run(mut self) -> io::Result<()> {
        // A polling aggregator is never woken, and gives up its core by yielding. With a shorter time
        // slice than the ranks' it would get the core back before they have run.
        if self.spin.is_zero()
            && let Err(error) = scheduling::ask_for_short_slices()
        {
            tracing::info!("{error}");
        }
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            self.work_until_idle(&mut events)?;
            self.publish();
            // Checked right before sleeping: the wake-up of the request to stop may have been
            // consumed while there was work.
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
                Command::Survey => {
                    let waits = self.waits().collect::<Vec<_>>();
                    let lasting = self.waits.survey(Instant::now(), waits.into_iter());
                    self.answers.tell_waits(lasting);
                }
            }
        }
    }

    /// Closes gracefully: aborts every group, and sends the aborts within a timeout.
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

/// `now` as the machine counts it: since the loop was made.
fn time_since(clock: Instant, now: Instant) -> Time {
    let passed = now.saturating_duration_since(clock);
    Time(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
}

/// Where a group's results go by multicast, if they do.
fn multicast_address(addresses: &[Option<SocketAddr>], group: GroupId) -> Option<SocketAddr> {
    addresses.get(group.0 as usize).copied().flatten()
}
