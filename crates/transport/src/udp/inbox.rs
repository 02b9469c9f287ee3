//! Messages that one system call received, handed out frame by frame.

use std::net::SocketAddr;

use super::sys::{FEW, Incoming};

/// Messages taken at once, each of which may be a train.
pub(super) const RECEIVE_BATCH: usize = 16;

/// Room for a message that is received: the longest datagram or train.
const MESSAGE_BYTES_MAX: usize = 65_536;

/// Messages received and not yet handed out.
pub(super) struct Inbox {
    pub(super) buffers: Vec<Box<[u8]>>,
    pub(super) messages: [Incoming; RECEIVE_BATCH],
    pub(super) count: usize,
    /// The message to hand out from.
    pub(super) next: usize,
    /// Where its next datagram begins.
    pub(super) offset: usize,
    /// The last call received fewer messages than it asked for.
    pub(super) is_drained: bool,
    /// How many messages the next call asks for.
    pub(super) asks: usize,
    /// The only possible source, if there is only one. Messages are then received one by one, with
    /// the cheapest system call.
    pub(super) only_source: Option<SocketAddr>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let nothing =
            Incoming { len_bytes: 0, source: SocketAddr::from(([0; 4], 0)), segment_bytes: 0 };
        Self {
            buffers: vec![buffer()],
            messages: [nothing; RECEIVE_BATCH],
            count: 0,
            next: 0,
            offset: 0,
            is_drained: false,
            asks: FEW,
            only_source: None,
        }
    }

    /// Sees to it that there is a buffer for each message that the next call asks for. A socket with one source, as
    /// every communicator has two of, never needs a second: 16 each took 20 MiB for ten communicators.
    pub(super) fn make_room(&mut self) {
        while self.buffers.len() < self.asks {
            self.buffers.push(buffer());
        }
    }

    /// The message that holds the next datagram, and the datagram's place in its buffer.
    pub(super) fn next_piece(&mut self) -> Option<(usize, std::ops::Range<usize>)> {
        while self.next < self.count {
            let message = self.messages[self.next];
            let len_bytes = message.len_bytes.min(MESSAGE_BYTES_MAX);
            if self.offset < len_bytes {
                let end = (self.offset + message.segment_bytes.max(1)).min(len_bytes);
                let range = self.offset..end;
                self.offset = end;
                return Some((self.next, range));
            }
            self.next += 1;
            self.offset = 0;
        }
        None
    }

    /// Notes the one message that a plain `recv` has put into the first buffer: `len_bytes` in all,
    /// in datagrams of `segment_bytes`.
    pub(super) fn note_one(&mut self, len_bytes: usize, segment_bytes: usize, source: SocketAddr) {
        self.messages[0] = Incoming { len_bytes, source, segment_bytes };
        self.count = 1;
        (self.next, self.offset) = (0, 0);
    }

    /// Whether a received datagram has not been handed out.
    pub(super) fn holds_more(&self) -> bool {
        let rest = self.messages[..self.count].get(self.next..).unwrap_or_default();
        rest.len() > 1 || rest.first().is_some_and(|message| self.offset < message.len_bytes)
    }
}

fn buffer() -> Box<[u8]> {
    vec![0; MESSAGE_BYTES_MAX].into_boxed_slice()
}
