//! Frames queued for sending, and how many of them make one train.

use std::net::SocketAddr;

use tributary_wire::frame::HEADER_BYTES;

use super::WHOLE_PAYLOAD_BYTES;

/// Bytes of a train, at most: as many as a datagram may have.
const TRAIN_BYTES_MAX: usize = 65_000;

/// Frames to be sent, one behind the other.
pub(super) struct Queue {
    pub(super) bytes: Vec<u8>,
    pub(super) entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) start: usize,
    pub(super) len_bytes: usize,
    pub(super) target: Option<SocketAddr>,
}

impl Queue {
    pub(super) fn drop_first(&mut self, count: usize) {
        if count == self.entries.len() {
            self.entries.clear();
            self.bytes.clear();
            return;
        }
        let Some(first) = self.entries.get(count).map(|entry| entry.start) else { return };
        self.entries.drain(..count);
        self.bytes.drain(..first);
        self.entries.iter_mut().for_each(|entry| entry.start -= first);
    }
}

/// How many of the first entries make one train: they go to one receiver and have one length,
/// except that the last may be shorter.
pub(super) fn train(entries: &[Entry]) -> usize {
    let head = entries[0];
    if head.len_bytes > HEADER_BYTES + WHOLE_PAYLOAD_BYTES as usize {
        return 1;
    }
    let mut length = 1;
    let mut bytes = head.len_bytes;
    for entry in &entries[1..] {
        // Copies of one frame lie at one place.
        let is_behind = entry.start == head.start + bytes;
        bytes += entry.len_bytes;
        let fits = is_behind
            && entry.target == head.target
            && entry.len_bytes <= head.len_bytes
            && bytes <= TRAIN_BYTES_MAX;
        if !fits {
            break;
        }
        length += 1;
        if entry.len_bytes < head.len_bytes {
            break;
        }
    }
    length
}
