//! What the manager is told of the aggregator's work. The event loop writes it, the control thread reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tributary_protocol::node::NodeStats;
use tributary_transport::Unqueued;
use tributary_wire::control::NodeCounts;

use super::counters::Counters;
use super::kernel::CountsReader;

/// The counts so far. Each is read by itself, so they need not fit each other exactly.
#[derive(Default)]
pub(super) struct Activity {
    kernel: Option<CountsReader>,
    unqueued: Option<Arc<Unqueued>>,
    contributions: AtomicU64,
    results: AtomicU64,
    repeats: AtomicU64,
    sent_again: AtomicU64,
    dropped: AtomicU64,
    payload_received_bytes: AtomicU64,
    payload_sent_bytes: AtomicU64,
}

impl Activity {
    /// None yet; what is done inside the kernel is read there.
    pub(super) fn new(kernel: Option<CountsReader>, unqueued: Option<Arc<Unqueued>>) -> Self {
        Self { kernel, unqueued, ..Self::default() }
    }

    /// Publishes the current counts.
    pub(super) fn publish(&self, counters: &Counters, stats: &NodeStats) {
        // Relaxed throughout: nobody concludes anything from one count about another.
        self.contributions.store(stats.requests + stats.chunks, Relaxed);
        self.results.store(stats.results + stats.chunk_results, Relaxed);
        self.repeats.store(stats.repeats, Relaxed);
        self.sent_again.store(stats.repeated, Relaxed);
        self.dropped.store(counters.datagrams_dropped() + stats.dropped, Relaxed);
        self.payload_received_bytes.store(counters.payload_bytes_received, Relaxed);
        self.payload_sent_bytes.store(counters.payload_bytes_sent, Relaxed);
    }

    /// The counts as of the last publication.
    pub(super) fn counts(&self) -> NodeCounts {
        NodeCounts {
            contributions: self.contributions.load(Relaxed),
            results: self.results.load(Relaxed),
            repeats: self.repeats.load(Relaxed),
            sent_again: self.sent_again.load(Relaxed),
            dropped: self.dropped.load(Relaxed) + self.unqueued.as_ref().map_or(0, |it| it.count()),
            payload_received_bytes: self.payload_received_bytes.load(Relaxed),
            payload_sent_bytes: self.payload_sent_bytes.load(Relaxed),
            kernel: self.kernel.as_ref().map(CountsReader::read),
        }
    }
}
