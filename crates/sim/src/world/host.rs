//! Hosts: adapters, and processes with a core each, or on those of a machine that all hosts share.

use super::cost::{AdapterCosts, Costs};
use crate::engine::Picos;
use crate::fabric::Vertex;

/// A host's adapter: a pipeline in each direction with a maximum packet rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Adapter {
    pub(super) transmit_free_at: Picos,
    pub(super) receive_free_at: Picos,
}

/// A process. It does one action after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub(super) host: Vertex,
    /// Until when its core is busy.
    pub(super) free_at: Picos,
    /// When the operating system next interrupts the core.
    pub(super) detour_at: Picos,
}

impl Adapter {
    /// When a packet that a core posts now is ready for the wire.
    pub(super) fn transmit(&mut self, costs: &Costs, now: Picos, bytes: u32) -> Picos {
        let AdapterCosts { transmit, fetch, gap, inline_max_bytes, .. } = costs.adapter;
        let start = now.max(self.transmit_free_at);
        self.transmit_free_at = start + gap;
        let fetching = if bytes > inline_max_bytes { fetch.of(bytes) } else { Picos::ZERO };
        start + transmit + fetching
    }

    /// When a core can see a packet whose last byte arrives now.
    pub(super) fn receive(&mut self, costs: &Costs, now: Picos, bytes: u32) -> Picos {
        let start = now.max(self.receive_free_at);
        self.receive_free_at = start + costs.adapter.gap;
        start + costs.adapter.receive.of(bytes)
    }
}
