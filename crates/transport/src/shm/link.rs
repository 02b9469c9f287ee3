//! The link itself: two rings and a socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tributary_inheritance::Uninherited;
use tributary_wire::frame::{HEADER_BYTES, Header};

use super::memory::{Mapping, Ring};
use super::ring::{BadReleased, Consumer, Producer, Push, record_bytes};
use crate::link::check_announced;
use crate::{Armed, Frame, Inject, Link, ReceiveError, SendError, Sent};

/// An empty poll reads shared memory only. One in this many also polls the socket, so that a side
/// that only polls notices its peer's death.
const EMPTY_POLLS_PER_SOCKET_POLL: u32 = 8192;

/// Reads from the socket per call. They are bounded so that a peer that rings without end can't
/// keep this side busy.
const DRAIN_READS_MAX: usize = 16;

/// Which end of the connection this is; it decides which ring is whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Connector,
    Acceptor,
}

/// One end of a link over shared memory.
pub struct ShmLink {
    outgoing: Producer<Ring>,
    incoming: Consumer<Ring>,
    socket: Uninherited<OwnedFd>,
    payload_max_bytes: u32,
    /// Room that the last `send` lacked; zero if it was taken.
    lacked_bytes: usize,
    empty_polls: u32,
    peer_gone: bool,
    /// Whether the socket held more than one call reads. An edge-triggered wait does not report the
    /// rest.
    is_undrained: bool,
    failed: Option<ReceiveError>,
}

impl ShmLink {
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        socket: Uninherited<OwnedFd>,
        end: End,
        payload_max_bytes: u32,
    ) -> Self {
        let (outgoing, incoming) = match end {
            End::Connector => (0, 1),
            End::Acceptor => (1, 0),
        };
        Self {
            outgoing: Producer::new(Ring::new(mapping, outgoing)),
            incoming: Consumer::new(Ring::new(mapping, incoming)),
            socket,
            payload_max_bytes,
            lacked_bytes: 0,
            empty_polls: 0,
            peer_gone: false,
            is_undrained: false,
            failed: None,
        }
    }

    /// Wakes the peer. A full socket already holds doorbells; a dead peer is found by receiving.
    fn ring_doorbell(&self) {
        let _ = send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Reads doorbells from the socket and notices whether the peer is gone.
    ///
    /// Reads until the kernel has nothing more, also after a short read: end of file may follow a
    /// doorbell directly, and an edge-triggered wait reports both once, together.
    fn poll_socket(&mut self) {
        let mut bytes = [0; 256];
        for _ in 0..DRAIN_READS_MAX {
            match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.peer_gone = true,
                Ok(_) | Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => self.peer_gone = true,
            }
            self.is_undrained = false;
            return;
        }
        self.is_undrained = true;
    }

    fn release_held(&mut self) {
        if self.incoming.release() {
            self.ring_doorbell();
        }
    }

    fn announce_released(&mut self) {
        if self.incoming.announce() {
            self.ring_doorbell();
        }
    }

    /// The header of the next record. No record is held.
    fn next_header(&mut self) -> Result<Option<Header>, ReceiveError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Some(bytes) = self.find_record() else {
            // A peer publishes before it closes, so one more poll after end of file decides.
            if !self.peer_gone {
                return Ok(None);
            }
            return match self.incoming.peek() {
                Some(bytes) => self.check(&bytes).map(Some),
                None => Err(self.fail(ReceiveError::Closed)),
            };
        };
        self.check(&bytes).map(Some)
    }

    fn find_record(&mut self) -> Option<[u8; HEADER_BYTES]> {
        let found = self.incoming.peek();
        if found.is_none() {
            self.announce_released();
            self.count_empty_poll();
        }
        found
    }

    fn count_empty_poll(&mut self) {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        if self.empty_polls.is_multiple_of(EMPTY_POLLS_PER_SOCKET_POLL) && !self.peer_gone {
            self.poll_socket();
        }
    }

    fn check(&mut self, bytes: &[u8; HEADER_BYTES]) -> Result<Header, ReceiveError> {
        let checked = Header::decode(bytes).map_err(ReceiveError::from).and_then(|header| {
            let announced_bytes = header.payload_bytes();
            if announced_bytes > self.payload_max_bytes as usize {
                let max_bytes = self.payload_max_bytes;
                return Err(ReceiveError::TooLong { announced_bytes, max_bytes });
            }
            Ok(header)
        });
        checked.map_err(|error| self.fail(error))
    }

    fn fail(&mut self, error: ReceiveError) -> ReceiveError {
        *self.failed.insert(error)
    }

    fn publish(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Sent, SendError> {
        match self.outgoing.push(header, payload).map_err(bad_index)? {
            Push::Quiet => {}
            Push::Wake => self.ring_doorbell(),
            Push::Full => {
                self.lacked_bytes = record_bytes(payload.len());
                return Ok(Sent::Full);
            }
        }
        self.lacked_bytes = 0;
        Ok(Sent::Taken)
    }

    /// Whether room has appeared since `send` said `Full`. A false index of the peer counts as
    /// room: `send` then reports it.
    fn has_regained_room(&mut self) -> bool {
        let regained =
            self.lacked_bytes != 0 && self.outgoing.has_room(self.lacked_bytes).unwrap_or(true);
        if regained {
            self.lacked_bytes = 0;
        }
        regained
    }
}

fn bad_index(bad: BadReleased) -> SendError {
    SendError::BadPeerIndex { claimed_bytes: bad.claimed, sent_bytes: bad.written }
}

impl AsFd for ShmLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for ShmLink {
    fn send(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Sent, SendError> {
        check_announced(header, payload, self.payload_max_bytes)?;
        if self.peer_gone {
            return Err(SendError::Closed);
        }
        self.publish(header, payload)
    }

    fn flush(&mut self) -> Result<Sent, SendError> {
        // A frame in the ring is already with the peer.
        Ok(Sent::Taken)
    }

    fn receive(&mut self) -> Result<Option<Frame<'_>>, ReceiveError> {
        self.release_held();
        let Some(header) = self.next_header()? else { return Ok(None) };
        let payload = self.incoming.take(header.payload_bytes());
        // No code: only the two ends can write to their memory.
        Ok(Some(Frame { header, payload, code: None }))
    }

    fn release(&mut self) {
        self.release_held();
        self.announce_released();
    }

    fn is_ready(&mut self) -> bool {
        self.release_held();
        if self.incoming.has_record() || self.failed.is_some() || self.has_regained_room() {
            return true;
        }
        self.announce_released();
        self.count_empty_poll();
        if self.is_undrained {
            self.poll_socket();
        }
        self.peer_gone || self.is_undrained
    }

    fn arm(&mut self) -> Armed {
        self.release_held();
        self.incoming.arm();
        if self.lacked_bytes != 0 {
            self.outgoing.arm();
        }
        if self.is_ready() {
            self.incoming.disarm();
            self.outgoing.disarm();
            return Armed::Ready;
        }
        Armed::Asleep
    }

    fn disarm(&mut self) {
        self.incoming.disarm();
        self.outgoing.disarm();
        self.poll_socket();
    }

    fn wants_write(&self) -> bool {
        // Room is announced by a doorbell, which makes the socket readable.
        false
    }

    fn payload_max_bytes(&self) -> u32 {
        self.payload_max_bytes
    }

    fn shutdown(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.peer_gone = true;
    }
}

impl Inject for ShmLink {
    fn inject(&mut self, bytes: &[u8]) -> Result<Sent, SendError> {
        if self.peer_gone {
            return Err(SendError::Closed);
        }
        // An upper bound on what is written below, wherever the frames begin and end.
        let enough = 2 * bytes.len() + 2 * record_bytes(0);
        if !self.outgoing.has_room(enough).map_err(bad_index)? {
            self.lacked_bytes = enough;
            return Ok(Sent::Full);
        }
        let mut rest = bytes;
        while let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let announced = Header::decode(header).map_or(behind.len(), |it| it.payload_bytes());
            let visible = header[..4] != [0; 4];
            let oversized = announced > self.payload_max_bytes as usize;
            if !visible || (announced > behind.len() && !oversized) {
                break;
            }
            let (payload, behind) = behind.split_at(announced.min(behind.len()));
            let _ = self.publish(header, payload)?;
            rest = behind;
        }
        // The rest is less than a frame. It is written and never published.
        let mut header = [0; HEADER_BYTES];
        let (start, payload) = rest.split_at(rest.len().min(HEADER_BYTES));
        header[..start.len()].copy_from_slice(start);
        self.outgoing.write(&header, payload);
        Ok(Sent::Taken)
    }
}
