//! What the event loop counts.

use super::refusals::{Dropped, Reason};

/// The event loop's counters: plain numbers, so that counting is cheap.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) frames_received: u64,
    pub(super) frames_sent: u64,
    pub(super) payload_bytes_received: u64,
    pub(super) payload_bytes_sent: u64,
    pub(super) links: u64,
    pub(super) groups: u64,
    pub(super) osos: u64,
    pub(super) arena_bytes: u64,
    pub(super) datagrams_received: u64,
    pub(super) datagrams_sent: u64,
    /// Datagrams that were no frames and reached the process, as the socket counts them.
    pub(super) datagrams_garbage: u64,
    pub(super) stream_arena_bytes: u64,
    pub(super) streams_waiting: u64,
    pub(super) refused: [u64; Reason::ALL.len()],
    pub(super) dropped: [u64; Dropped::ALL.len()],
}

impl Counters {
    /// Counts one refused peer.
    pub(super) fn refuse(&mut self, reason: Reason) {
        self.refused[reason as usize] += 1;
    }

    /// Counts one datagram dropped.
    pub(super) fn drop_datagram(&mut self, why: Dropped) {
        self.dropped[why as usize] += 1;
    }

    /// Datagrams that changed nothing, for whatever reason.
    pub(super) fn datagrams_dropped(&self) -> u64 {
        self.datagrams_garbage + self.dropped.iter().sum::<u64>()
    }
}
