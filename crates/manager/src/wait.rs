//! What one aggregator says that its part of a group waits for.

use alloc::vec::Vec;

use tributary_wire::ChildIndex;

use tributary_protocol::Time;

const NS_PER_MS: u64 = 1_000_000;

/// What one aggregator's part of a group waits for.
pub(super) struct Wait {
    /// When the aggregator told of it.
    pub(super) told: Time,
    /// How long it had lasted then: maybe longer than this manager has lived.
    pub(super) waited_ms: u64,
    pub(super) operation: Option<u32>,
    pub(super) missing: Vec<ChildIndex>,
}

impl Wait {
    /// How long it has lasted, in ms.
    pub(super) fn waited_ms_at(&self, now: Time) -> u64 {
        self.waited_ms.saturating_add(now.since_ns(self.told) / NS_PER_MS)
    }
}
