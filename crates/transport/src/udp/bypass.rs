//! Datagrams past the network stack, beside a socket that gets what still goes through it.

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use tributary_af_xdp::{PAYLOAD_BYTES_MAX, Port, Taken};

use super::queue::Entry;

/// While frames come past the network stack, the socket is polled once in so many polls that find nothing. What comes
/// through it are long trains of datagrams, fragments, packets of other queues, and everything if somebody detaches the
/// program. Where both ways are in use, it is polled more often: each frame past the stack doubles the number up to
/// this one, and each through it makes it one.
const POLLS_PER_SOCKET_MAX: u32 = 16;

/// See the module documentation.
pub(super) struct Bypass {
    port: Port,
    /// Polls that find nothing until the socket's turn, and from one turn to the next.
    socket_due_in: u32,
    polls_per_socket: u32,
    /// What is queued goes through the network stack.
    is_avoided: bool,
    /// The kernel had no room for what was taken.
    has_unsent: bool,
}

impl Bypass {
    pub(super) fn new(port: Port) -> Self {
        Self { port, socket_due_in: 0, polls_per_socket: 1, is_avoided: false, has_unsent: false }
    }

    /// The next datagram, from `peer` if that is given: its length and its source.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        peer: Option<SocketAddr>,
    ) -> Option<(usize, SocketAddr)> {
        loop {
            let (len_bytes, source) = self.port.receive(buffer)?;
            let source = SocketAddr::V4(source);
            if peer.is_none_or(|peer| peer == source) {
                self.polls_per_socket = (2 * self.polls_per_socket).min(POLLS_PER_SOCKET_MAX);
                return Some((len_bytes, source));
            }
        }
    }

    /// Whether a poll that found nothing here polls the socket, too.
    pub(super) fn is_socket_due(&mut self) -> bool {
        let is_due = self.socket_due_in == 0;
        self.socket_due_in = if is_due { self.polls_per_socket } else { self.socket_due_in } - 1;
        is_due
    }

    /// The next polls poll the socket, too.
    pub(super) fn expect_socket(&mut self) {
        (self.polls_per_socket, self.socket_due_in) = (1, 0);
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

    pub(super) fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// The datagram received last came from who it says.
    pub(super) fn confirm(&mut self) {
        self.port.confirm();
    }

    /// As [`Port::arm`].
    pub(super) fn arm(&mut self) -> bool {
        self.port.arm()
    }

    /// As [`Port::disarm`].
    pub(super) fn disarm(&mut self) {
        self.port.disarm();
    }
}

impl AsFd for Bypass {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}
