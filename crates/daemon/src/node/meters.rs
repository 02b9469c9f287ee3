//! What the event loop counts, and where others read it.

use metrics::{Counter, Gauge};
use tributary_protocol::node::NodeStats;

use super::refusals::{Dropped, Reason};
use crate::metrics::Registry;

/// The event loop's own counts: plain numbers, so that counting costs nothing.
#[derive(Debug, Default)]
pub(super) struct Tally {
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
    /// Datagrams that were no frames, as the socket counts them.
    pub(super) datagrams_garbage: u64,
    pub(super) stream_arena_bytes: u64,
    pub(super) streams_waiting: u64,
    refused: [u64; Reason::ALL.len()],
    dropped: [u64; Dropped::ALL.len()],
}

impl Tally {
    /// Counts one peer turned away.
    pub(super) fn refuse(&mut self, reason: Reason) {
        self.refused[reason as usize] += 1;
    }

    /// Counts one datagram dropped.
    pub(super) fn drop_datagram(&mut self, why: Dropped) {
        self.dropped[why as usize] += 1;
    }
}

const DROPPED: &str = "tributary_node_datagrams_dropped_total";
const DROPPED_HELP: &str = "datagrams dropped for what they are or where they come from";

/// The same counts where the metrics' reader finds them.
pub(super) struct DataMeters {
    frames_received: Counter,
    frames_sent: Counter,
    payload_bytes_received: Counter,
    payload_bytes_sent: Counter,
    requests: Counter,
    repeats: Counter,
    results: Counter,
    chunks: Counter,
    chunk_results: Counter,
    streams: Counter,
    late: Counter,
    groups_failed: Counter,
    groups_ended: Counter,
    datagrams_received: Counter,
    datagrams_sent: Counter,
    held: Counter,
    missing: Counter,
    repeated: Counter,
    silent_edges: Counter,
    multicasts: Counter,
    spared: Counter,
    outsider_results: Counter,
    outsider_missed: Counter,
    outsiders_dropped: Counter,
    garbage: Counter,
    dropped: [Counter; Dropped::ALL.len()],
    refused: [Counter; Reason::ALL.len()],
    links: Gauge,
    groups: Gauge,
    osos: Gauge,
    arena_bytes: Gauge,
    stream_arena_bytes: Gauge,
    streams_waiting: Gauge,
}

impl DataMeters {
    /// Announces every metric, so that each is there, at zero, from the start.
    #[rustfmt::skip] // One metric a line.
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help, None);
        Self {
            frames_received: counter("tributary_node_frames_received_total", "frames taken from links"),
            frames_sent: counter("tributary_node_frames_sent_total", "frames that links took"),
            payload_bytes_received: counter("tributary_node_payload_received_bytes_total", "payload in received frames"),
            payload_bytes_sent: counter("tributary_node_payload_sent_bytes_total", "payload in sent frames"),
            requests: counter("tributary_node_requests_total", "contributions counted"),
            repeats: counter("tributary_node_repeats_total", "contributions seen before, not counted again"),
            results: counter("tributary_node_results_total", "segments whose result was handed down"),
            chunks: counter("tributary_node_chunks_total", "chunks' contributions counted"),
            chunk_results: counter("tributary_node_chunk_results_total", "chunks whose result was handed down"),
            streams: counter("tributary_node_streams_total", "streams that ran to their end"),
            late: counter("tributary_node_late_frames_total", "frames for groups that were gone, dropped"),
            groups_failed: counter("tributary_node_groups_failed_total", "groups that failed"),
            groups_ended: counter("tributary_node_groups_ended_total", "groups that ended in good order"),
            datagrams_received: counter("tributary_node_datagrams_received_total", "frames taken from datagrams"),
            datagrams_sent: counter("tributary_node_datagrams_sent_total", "frames sent as datagrams"),
            held: counter("tributary_node_held_total", "repeated requests answered that they are known"),
            missing: counter("tributary_node_missing_total", "requests that children were told of as lost"),
            repeated: counter("tributary_node_repeated_total", "own requests sent upward again"),
            silent_edges: counter("tributary_node_silent_edges_total", "edges upward whose datagrams do not arrive, left to TCP"),
            multicasts: counter("tributary_node_multicasts_total", "results sent to multicast addresses"),
            spared: counter("tributary_node_copies_spared_total", "reliable copies not sent, because multicast is heard"),
            outsider_results: counter("tributary_node_outsider_results_total", "results sent to processes outside their groups"),
            outsider_missed: counter("tributary_node_outsider_missed_total", "results for a process outside its group while none was there"),
            outsiders_dropped: counter("tributary_node_outsiders_dropped_total", "processes outside groups that read too slowly"),
            garbage: registry.counter(DROPPED, DROPPED_HELP, Some(("reason", "garbage"))),
            dropped: Dropped::ALL.map(|why| registry.counter(DROPPED, DROPPED_HELP, Some(("reason", why.label())))),
            refused: Reason::ALL.map(|reason| registry.counter(
                "tributary_node_refused_total", "links closed for what their peers did", Some(("reason", reason.label())),
            )),
            links: registry.gauge("tributary_node_links", "open links"),
            groups: registry.gauge("tributary_node_groups", "installed groups"),
            osos: registry.gauge("tributary_node_osos_used", "outstanding operations that groups hold"),
            arena_bytes: registry.gauge("tributary_node_arena_bytes", "payload memory that groups and streams hold"),
            stream_arena_bytes: registry.gauge("tributary_node_stream_arena_bytes", "payload memory that streams hold, shared by all groups"),
            streams_waiting: registry.gauge("tributary_node_streams_waiting", "groups that wait for a stream lock"),
        }
    }

    /// Makes the counts readable.
    pub(super) fn publish(&self, tally: &Tally, stats: &NodeStats) {
        self.frames_received.absolute(tally.frames_received);
        self.frames_sent.absolute(tally.frames_sent);
        self.payload_bytes_received.absolute(tally.payload_bytes_received);
        self.payload_bytes_sent.absolute(tally.payload_bytes_sent);
        self.requests.absolute(stats.requests);
        self.repeats.absolute(stats.repeats);
        self.results.absolute(stats.results);
        self.chunks.absolute(stats.chunks);
        self.chunk_results.absolute(stats.chunk_results);
        self.streams.absolute(stats.streams);
        self.late.absolute(stats.late);
        self.datagrams_received.absolute(tally.datagrams_received);
        self.datagrams_sent.absolute(tally.datagrams_sent);
        self.held.absolute(stats.held);
        self.missing.absolute(stats.missing);
        self.repeated.absolute(stats.repeated);
        self.silent_edges.absolute(stats.silent_edges);
        self.multicasts.absolute(stats.multicasts);
        self.spared.absolute(stats.spared);
        self.outsider_results.absolute(stats.outsider_results);
        self.outsider_missed.absolute(stats.outsider_missed);
        self.outsiders_dropped.absolute(stats.outsiders_dropped);
        self.garbage.absolute(tally.datagrams_garbage);
        for (counter, count) in self.dropped.iter().zip(tally.dropped) {
            counter.absolute(count);
        }
        self.groups_failed.absolute(stats.groups_failed);
        self.groups_ended.absolute(stats.groups_ended);
        for (counter, count) in self.refused.iter().zip(tally.refused) {
            counter.absolute(count);
        }
        self.links.set(tally.links as f64);
        self.groups.set(tally.groups as f64);
        self.osos.set(tally.osos as f64);
        self.arena_bytes.set(tally.arena_bytes as f64);
        self.stream_arena_bytes.set(tally.stream_arena_bytes as f64);
        self.streams_waiting.set(tally.streams_waiting as f64);
    }
}
