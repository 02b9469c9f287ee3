//! The links of one aggregator, by port.
//!
//! Owns the numbering of ports, the bound on their number, and the deadlines of links that have not
//! joined a group or are about to be closed. Knows nothing of frames.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tributary_protocol::node::PortId;
use tributary_transport::{
    Armed, AuthenticationKey, Frame, Link, ReceiveError, SendError, Sent, ShmLink, TcpLink,
};
use tributary_wire::frame::HEADER_BYTES;

/// A link of either kind. An enum, because dynamic dispatch costs more.
pub(super) enum AnyLink {
    /// Between hosts.
    Tcp(TcpLink),
    /// Between processes of one host.
    Shm(ShmLink),
}

macro_rules! on_link {
    ($any:expr, $link:ident => $call:expr) => {
        match $any {
            AnyLink::Tcp($link) => $call,
            AnyLink::Shm($link) => $call,
        }
    };
}

impl AnyLink {
    pub(super) fn send(
        &mut self,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
    ) -> Result<Sent, SendError> {
        on_link!(self, link => link.send(header, payload))
    }

    pub(super) fn flush(&mut self) -> Result<Sent, SendError> {
        on_link!(self, link => link.flush())
    }

    pub(super) fn receive(&mut self) -> Result<Option<Frame<'_>>, ReceiveError> {
        on_link!(self, link => link.receive())
    }

    pub(super) fn arm(&mut self) -> Armed {
        on_link!(self, link => link.arm())
    }

    pub(super) fn disarm(&mut self) {
        on_link!(self, link => link.disarm());
    }

    /// Authenticates all further frames, if the link is TCP.
    pub(super) fn authenticate(&mut self, key: AuthenticationKey) {
        match self {
            Self::Tcp(link) => link.authenticate(key),
            // Only the two ends can write to their memory.
            Self::Shm(_) => {}
        }
    }

    /// The address of the other end, where it has one.
    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(link) => link.peer_address().ok(),
            Self::Shm(_) => None,
        }
    }

    /// Whether the peer can still read all flushed frames after this end is closed.
    pub(super) fn is_safe_to_close(&self) -> bool {
        match self {
            Self::Tcp(link) => link.unacknowledged_bytes() == 0,
            // The frames lie in memory that the peer has mapped too.
            Self::Shm(_) => true,
        }
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }
}

impl AsFd for AnyLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        on_link!(self, link => link.as_fd())
    }
}

/// The stage of a link's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Accepted; nobody has joined over it yet.
    Unjoined,
    /// It carries an edge of a group.
    Joined,
    /// It is closing gracefully: it stays until its final frames have arrived, the peer is gone, or
    /// the deadline has passed.
    Lingering,
}

/// A link and what the event loop remembers of it.
pub(super) struct Entry {
    pub(super) link: AnyLink,
    pub(super) stage: Stage,
    /// The kernel has signalled that there may be something to read, or room.
    pub(super) is_signalled: bool,
    /// The link, or the datagram socket, had no room for frames that the machine has for this port.
    pub(super) is_blocked: bool,
    /// The peer's address for datagrams of this edge, once the peer has announced it.
    pub(super) datagram_peer: Option<SocketAddr>,
    generation: u64,
}

/// When the stage of a link ends, unless another link has the port by then.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    port: PortId,
    generation: u64,
}

/// Every link of one aggregator.
pub(super) struct Links {
    entries: Vec<Option<Entry>>,
    free: Vec<PortId>,
    links_max: usize,
    generation: u64,
    tcp_count: usize,
    /// Each ascends, because its links all wait equally long.
    unjoined: VecDeque<Deadline>,
    lingering: VecDeque<Deadline>,
    join_within: Duration,
    linger: Duration,
}

impl Links {
    /// No links, and never more than `links_max`.
    pub(super) fn new(links_max: usize, join_within: Duration, linger: Duration) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            links_max,
            generation: 0,
            tcp_count: 0,
            unjoined: VecDeque::new(),
            lingering: VecDeque::new(),
            join_within,
            linger,
        }
    }

    /// Gives a link a port. `None` if there is no room for one more.
    pub(super) fn add(&mut self, now: Instant, link: AnyLink, stage: Stage) -> Option<PortId> {
        let port = match self.free.pop() {
            Some(port) => port,
            None if self.entries.len() < self.links_max => {
                self.entries.push(None);
                PortId((self.entries.len() - 1) as u32)
            }
            None => return None,
        };
        self.generation += 1;
        self.tcp_count += usize::from(link.is_tcp());
        let generation = self.generation;
        // Bytes that came before the link was watched cause no edge, so it is polled once.
        let entry = Entry {
            link,
            stage,
            is_signalled: true,
            is_blocked: false,
            datagram_peer: None,
            generation,
        };
        self.entries[port.0 as usize] = Some(entry);
        if stage == Stage::Unjoined {
            self.unjoined.push_back(Deadline { at: now + self.join_within, port, generation });
        }
        Some(port)
    }

    /// The link at a port.
    pub(super) fn peek(&self, port: PortId) -> Option<&Entry> {
        self.entries.get(port.0 as usize)?.as_ref()
    }

    /// Takes a link and frees its port.
    pub(super) fn remove(&mut self, port: PortId) -> Option<Entry> {
        let entry = self.entries.get_mut(port.0 as usize)?.take()?;
        self.tcp_count -= usize::from(entry.link.is_tcp());
        self.free.push(port);
        Some(entry)
    }

    /// Starts a link's graceful close.
    pub(super) fn linger(&mut self, now: Instant, port: PortId) {
        let Some(entry) = self.entry(port) else { return };
        entry.stage = Stage::Lingering;
        entry.is_signalled = true;
        let generation = entry.generation;
        self.lingering.push_back(Deadline { at: now + self.linger, port, generation });
    }

    /// The link at `port`, if there is one.
    pub(super) fn entry(&mut self, port: PortId) -> Option<&mut Entry> {
        self.entries.get_mut(port.0 as usize)?.as_mut()
    }

    /// One past the highest port ever used.
    pub(super) fn ports_end(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Number of links.
    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is no room for another link.
    pub(super) fn is_full(&self) -> bool {
        self.count() == self.links_max
    }

    /// Number of TCP links.
    pub(super) fn tcp_count(&self) -> usize {
        self.tcp_count
    }

    /// The oldest link that nobody has joined over, to make room for a newer one.
    pub(super) fn oldest_unjoined(&mut self) -> Option<PortId> {
        while let Some(deadline) = self.unjoined.pop_front() {
            if self.is_at(deadline, Stage::Unjoined) {
                return Some(deadline.port);
            }
        }
        None
    }

    /// The next link whose time in its stage is over, and the stage.
    pub(super) fn pop_overdue(&mut self, now: Instant) -> Option<(PortId, Stage)> {
        for stage in [Stage::Unjoined, Stage::Lingering] {
            while let Some(deadline) = self.queue(stage).pop_front_if(|first| first.at <= now) {
                if self.is_at(deadline, stage) {
                    return Some((deadline.port, stage));
                }
            }
        }
        None
    }

    /// When [`Links::pop_overdue`] may have something.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        for stage in [Stage::Unjoined, Stage::Lingering] {
            // Links that have left the stage would wake the loop for nothing.
            while let Some(first) = self.queue(stage).front().copied() {
                if self.is_at(first, stage) {
                    break;
                }
                self.queue(stage).pop_front();
            }
        }
        let fronts = [self.unjoined.front(), self.lingering.front()];
        fronts.into_iter().flatten().map(|deadline| deadline.at).min()
    }

    fn queue(&mut self, stage: Stage) -> &mut VecDeque<Deadline> {
        match stage {
            Stage::Unjoined => &mut self.unjoined,
            Stage::Joined | Stage::Lingering => &mut self.lingering,
        }
    }

    fn is_at(&mut self, deadline: Deadline, stage: Stage) -> bool {
        self.entry(deadline.port)
            .is_some_and(|entry| entry.generation == deadline.generation && entry.stage == stage)
    }
}
