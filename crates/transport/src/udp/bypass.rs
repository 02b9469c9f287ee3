//! Datagrams past the network stack, beside a socket that gets what still goes through it: those of one peer by AF_XDP, both ways,
//! or those of all senders by a ring, which answers leave by the socket.

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use tributary_af_xdp::{Delivery, PAYLOAD_BYTES_MAX, Port, Taken};

use super::queue::Entry;

/// While frames come past the network stack, the socket is polled once in so many polls that find nothing. What comes
/// through it are long trains of datagrams, fragments, packets of other queues, and everything if somebody detaches the
/// program. Where both ways are in use, it is polled more often: each frame past the stack doubles the number up to
/// this one, and each through it makes it one.
const POLLS_PER_SOCKET_MAX: u32 = 16;

/// The same while frames come by a ring: most of what its socket gets says by itself that it is there, by ending a sleep. Each
/// poll of the socket that finds nothing doubles the number up to this one, and each frame through it makes it one.
const RING_POLLS_PER_SOCKET_MAX: u32 = 128;

/// What brings frames past the network stack.
pub(super) enum Bypass {
    Port(PortBypass),
    Ring(RingBypass),
}

impl Bypass {
    /// The next datagram, from `peer` if that is given: its length and its source.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        peer: Option<SocketAddr>,
    ) -> Option<(usize, SocketAddr)> {
        match self {
            Self::Port(port) => port.receive(buffer, peer),
            Self::Ring(ring) => ring.receive(buffer),
        }
    }

    /// Whether a poll that found nothing here polls the socket, too.
    pub(super) fn is_socket_due(&mut self) -> bool {
        match self {
            Self::Port(port) => port.turns.is_due(),
            Self::Ring(ring) => ring.is_socket_due(),
        }
    }

    /// The next polls poll the socket, too.
    pub(super) fn expect_socket(&mut self) {
        let turns = match self {
            Self::Port(port) => &mut port.turns,
            Self::Ring(ring) => &mut ring.turns,
        };
        *turns = SocketTurns::EACH_POLL;
    }

    /// Gets ready for a sleep until so many datagrams have come. False if there is one already.
    pub(super) fn arm(&mut self, lacking: u32) -> bool {
        match self {
            Self::Port(port) => port.port.arm(),
            Self::Ring(ring) => ring.delivery.as_mut().is_none_or(|it| it.arm(lacking)),
        }
    }

    /// Ends what [`Bypass::arm`] began.
    pub(super) fn disarm(&mut self) {
        match self {
            Self::Port(port) => port.port.disarm(),
            Self::Ring(ring) => ring.delivery.iter_mut().for_each(Delivery::disarm),
        }
    }

    /// Readable if something came past the network stack. A ring says so by the socket.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Port(port) => Some(port.port.as_fd()),
            Self::Ring(_) => None,
        }
    }

    pub(super) fn port(&mut self) -> Option<&mut PortBypass> {
        match self {
            Self::Port(port) => Some(port),
            Self::Ring(_) => None,
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        matches!(self, Self::Port(port) if port.has_unsent)
    }
}

/// When a socket is polled beside what goes past the network stack.
struct SocketTurns {
    /// Polls that find nothing until the socket's turn, and from one turn to the next.
    due_in: u32,
    polls_per_turn: u32,
}

impl SocketTurns {
    /// From now on every poll is the socket's turn.
    const EACH_POLL: Self = Self { due_in: 0, polls_per_turn: 1 };

    /// Turns are half as frequent from the next one on, but no rarer than once in so many polls.
    fn space_out(&mut self, polls_max: u32) {
        self.polls_per_turn = (2 * self.polls_per_turn).min(polls_max);
    }

    /// Counts a poll that found nothing. Whether it is the socket's turn.
    fn is_due(&mut self) -> bool {
        let is_due = self.due_in == 0;
        self.due_in = if is_due { self.polls_per_turn } else { self.due_in } - 1;
        is_due
    }
}

/// A ring beside a socket.
pub(super) struct RingBypass {
    /// None where the ring is another socket's.
    delivery: Option<Delivery>,
    turns: SocketTurns,
}

impl RingBypass {
    pub(super) fn new(delivery: Option<Delivery>) -> Self {
        Self { delivery, turns: SocketTurns::EACH_POLL }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let (len_bytes, source) = self.delivery.as_mut()?.receive(buffer)?;
        Some((len_bytes, source))
    }

    fn is_socket_due(&mut self) -> bool {
        if self.turns.due_in == 0 {
            self.turns.space_out(RING_POLLS_PER_SOCKET_MAX);
        }
        self.turns.is_due()
    }
}

/// A port of AF_XDP beside a socket with one peer.
pub(super) struct PortBypass {
    port: Port,
    turns: SocketTurns,
    /// What is queued goes through the network stack.
    is_avoided: bool,
    /// The kernel had no room for what was taken.
    has_unsent: bool,
}

impl PortBypass {
    pub(super) fn new(port: Port) -> Self {
        Self { port, turns: SocketTurns::EACH_POLL, is_avoided: false, has_unsent: false }
    }

    /// The next datagram, from `peer` if that is given: its length and its source.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        peer: Option<SocketAddr>,
    ) -> Option<(usize, SocketAddr)> {
        loop {
            let (len_bytes, source) = self.port.receive(buffer)?;
            let source = SocketAddr::V4(source);
            if peer.is_none_or(|peer| peer == source) {
                self.turns.space_out(POLLS_PER_SOCKET_MAX);
                return Some((len_bytes, source));
            }
        }
    }

    /// What is queued now goes through the network stack.
    pub(super) fn avoid(&mut self) {
        self.is_avoided = true;
    }

    /// Sends queued frames to `peer`, and says how many were taken. None if they are to go through the network stack: a
    /// train crosses it once, and past it there are none (4 KiB from 8 hosts: 70 us, and 103 as single packets).
    pub(super) fn send(
        &mut self,
        peer: SocketAddrV4,
        entries: &[Entry],
        bytes: &[u8],
        sends_trains: bool,
    ) -> Option<usize> {
        let fits = |entry: &Entry| entry.target.is_none() && entry.len_bytes <= PAYLOAD_BYTES_MAX;
        let is_train = sends_trains && entries.len() > 1;
        let is_possible = self.port.can_send() && entries.iter().all(fits);
        if self.is_avoided || is_train || !is_possible {
            self.is_avoided = false;
            return None;
        }
        let frames = entries.iter().map(|entry| &bytes[entry.start..entry.start + entry.len_bytes]);
        let Taken { count, is_sent } = self.port.send(peer, frames);
        self.has_unsent = !is_sent;
        Some(count)
    }

    /// Sends what the kernel had no room for; false if it still has none.
    pub(super) fn flush(&mut self) -> bool {
        self.has_unsent = self.has_unsent && !self.port.flush();
        !self.has_unsent
    }

    /// The datagram received last came from who it says.
    pub(super) fn confirm(&mut self) {
        self.port.confirm();
    }
}
