//! The event loop's counters as metrics.

use std::sync::Arc;

use metrics::{Counter, Label};
use tributary_protocol::node::NodeStats;
use tributary_transport::Unqueued;

use super::activity::Activity;
use super::counters::Counters;
use super::refusals::{Dropped, Reason};
use crate::metrics::{Meters, Registry, Table};

const DROPPED: &str = "tributary_node_datagrams_dropped_total";
const DROPPED_HELP: &str = "datagrams dropped for what they are or where they come from";

const REFUSED: &str = "tributary_node_refused_total";
const REFUSED_HELP: &str = "links closed for what their peers did";

#[rustfmt::skip] // One metric a line.
const COUNTERS: Table<Counters> = &[
    ("tributary_node_frames_received_total", "frames taken from links", |counters| counters.frames_received),
    ("tributary_node_frames_sent_total", "frames that links took", |counters| counters.frames_sent),
    ("tributary_node_payload_received_bytes_total", "payload in received frames", |counters| counters.payload_bytes_received),
    ("tributary_node_payload_sent_bytes_total", "payload in sent frames", |counters| counters.payload_bytes_sent),
    ("tributary_node_datagrams_received_total", "frames taken from datagrams", |counters| counters.datagrams_received),
    ("tributary_node_datagrams_sent_total", "frames sent as datagrams", |counters| counters.datagrams_sent),
];

#[rustfmt::skip] // One metric a line.
const MACHINE_COUNTERS: Table<NodeStats> = &[
    ("tributary_node_requests_total", "contributions counted", |stats| stats.requests),
    ("tributary_node_repeats_total", "contributions seen before, not counted again", |stats| stats.repeats),
    ("tributary_node_results_total", "segments whose result was handed down", |stats| stats.results),
    ("tributary_node_chunks_total", "chunks' contributions counted", |stats| stats.chunks),
    ("tributary_node_chunk_results_total", "chunks whose result was handed down", |stats| stats.chunk_results),
    ("tributary_node_streams_total", "streams that ran to their end", |stats| stats.streams),
    ("tributary_node_late_frames_total", "frames for groups that were gone, dropped", |stats| stats.late),
    ("tributary_node_groups_failed_total", "groups that failed", |stats| stats.groups_failed),
    ("tributary_node_groups_ended_total", "groups that ended in good order", |stats| stats.groups_ended),
    ("tributary_node_acks_total", "acks sent: repeated requests that wait for other children", |stats| stats.acks),
    ("tributary_node_nacks_total", "nacks sent: requests that came after a later one or not at all", |stats| stats.nacks),
    ("tributary_node_repeated_total", "own requests sent upward again", |stats| stats.repeated),
    ("tributary_node_silent_edges_total", "edges upward whose datagrams do not arrive, left to TCP", |stats| stats.silent_edges),
    ("tributary_node_multicasts_total", "results sent to multicast addresses", |stats| stats.multicasts),
    ("tributary_node_copies_spared_total", "reliable copies not sent, because the child is subscribed to multicast", |stats| stats.spared),
    ("tributary_node_external_results_total", "results sent to external receivers", |stats| stats.external_results),
    ("tributary_node_external_missed_total", "results for an external receiver while none had joined", |stats| stats.external_missed),
    ("tributary_node_external_dropped_total", "external receivers dropped because they read too slowly", |stats| stats.external_dropped),
];

#[rustfmt::skip] // One metric a line.
const GAUGES: Table<Counters> = &[
    ("tributary_node_links", "open links", |counters| counters.links),
    ("tributary_node_groups", "installed groups", |counters| counters.groups),
    ("tributary_node_osos_used", "outstanding operations that groups hold", |counters| counters.osos),
    ("tributary_node_arena_bytes", "payload memory that groups and streams hold", |counters| counters.arena_bytes),
    ("tributary_node_stream_arena_bytes", "payload memory that streams hold, shared by all groups", |counters| counters.stream_arena_bytes),
    ("tributary_node_streams_waiting", "groups that wait for a stream lock", |counters| counters.streams_waiting),
];

/// What the kernel drops at the datagram socket, as a metric. It is read when it is asked for: no process is woken
/// for any.
pub(super) struct UnqueuedMeter {
    counter: Counter,
    unqueued: Option<Arc<Unqueued>>,
}

impl UnqueuedMeter {
    /// Registers the metric; it stays zero without a socket.
    pub(super) fn new(registry: &Registry, unqueued: Option<Arc<Unqueued>>) -> Self {
        let label = Label::from_static_parts("reason", "not-queued");
        Self { counter: registry.counter(DROPPED, DROPPED_HELP, Some(label)), unqueued }
    }

    /// Publishes the count now.
    pub(super) fn publish(&self) {
        if let Some(unqueued) = &self.unqueued {
            self.counter.absolute(unqueued.count());
        }
    }
}

/// The counters as metrics.
pub(super) struct DataMeters {
    counters: Meters<Counters>,
    machine: Meters<NodeStats>,
    garbage: Counter,
    dropped: [Counter; Dropped::ALL.len()],
    refused: [Counter; Reason::ALL.len()],
    activity: Arc<Activity>,
}

impl DataMeters {
    /// Registers every metric, so that each is there, at zero, from the start.
    pub(super) fn new(registry: &Registry, activity: Arc<Activity>) -> Self {
        let for_reason = |name, help, reason| {
            registry.counter(name, help, Some(Label::from_static_parts("reason", reason)))
        };
        Self {
            counters: Meters::new(registry, COUNTERS, GAUGES),
            machine: Meters::new(registry, MACHINE_COUNTERS, &[]),
            garbage: for_reason(DROPPED, DROPPED_HELP, "garbage"),
            dropped: Dropped::ALL.map(|why| for_reason(DROPPED, DROPPED_HELP, why.label())),
            refused: Reason::ALL.map(|why| for_reason(REFUSED, REFUSED_HELP, why.label())),
            activity,
        }
    }

    /// Publishes the current counts.
    pub(super) fn publish(&self, counters: &Counters, stats: &NodeStats) {
        self.counters.publish(counters);
        self.machine.publish(stats);
        self.activity.publish(counters, stats);
        self.garbage.absolute(counters.datagrams_garbage);
        for (counter, count) in self.dropped.iter().zip(counters.dropped) {
            counter.absolute(count);
        }
        for (counter, count) in self.refused.iter().zip(counters.refused) {
            counter.absolute(count);
        }
    }
}
