//! Links between processes. What is sent at one end arrives at the other, later.
//!
//! A link keeps one contract: frames arrive whole, once and in order, or the connection ends, as
//! with TCP and shared memory. Beside it there may be a path for datagrams between the same two
//! ends, which promises nothing: see [`super::datagrams`].

use std::collections::VecDeque;
use std::ops::Range;

use tributary_protocol::StreamTerms;
use tributary_protocol::node::PortId;

use tributary_protocol_testing::Windows;

use super::agenda::End;
use super::fault_record::Key;

/// Frames a port may hold beyond one per slot.
const OUTBOX_SPARE: usize = 4;

/// The process at an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Node {
        node: u32,
        port: PortId,
    },
    Member(u32),
    /// A process that belongs to no group.
    Stranger,
}

/// What travels on a link.
#[derive(Debug)]
pub(super) enum Parcel {
    Frame {
        bytes: Vec<u8>,
        is_forged: bool,
    },
    /// The other end has closed its direction.
    End,
}

/// The edge of a group's tree that a link serves.
#[derive(Clone, Debug)]
pub(super) struct EdgeOf {
    pub(super) group: Key,
    /// The members at or below its lower end.
    pub(super) below: Range<u32>,
    /// Segments, and chunks, in flight at most.
    pub(super) windows: [u16; 2],
    /// Frames that either end may have queued.
    pub(super) queued_max: usize,
    /// How far a request may lie before the newest and still be awaited, if that is bounded.
    pub(super) horizon: Option<u32>,
}

impl EdgeOf {
    /// An edge of a group with these terms, above the members `below`.
    pub(super) fn new(
        group: Key,
        below: Range<u32>,
        osos: u16,
        stream: Option<StreamTerms>,
    ) -> Self {
        let slots_for = |window: u16| usize::from(2 * window).next_power_of_two();
        let window = stream.map_or(0, |terms| terms.window);
        let streamed = if stream.is_some() { slots_for(window) + 1 } else { 0 };
        let queued_max = slots_for(osos) + streamed + OUTBOX_SPARE;
        Self { group, below, windows: [osos, window], queued_max, horizon: None }
    }

    /// Lets members go on with results that the aggregator below does not have yet, as far as it has
    /// slots.
    pub(super) fn allow_members_ahead(&mut self) {
        self.windows[0] = (2 * self.windows[0]).next_power_of_two();
        self.horizon = Some(u32::from(self.windows[0]));
    }
}

/// A link. Arrays are indexed by the end at which a thing is, or to which it travels.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) holders: [Holder; 2],
    pub(super) machines: [u32; 2],
    pub(super) is_open: [bool; 2],
    /// Whether the end has closed its direction.
    pub(super) has_ended: [bool; 2],
    pub(super) queue: [VecDeque<Parcel>; 2],
    pub(super) last_at: [u64; 2],
    /// When an end that has stopped reading goes on.
    pub(super) held_until: [u64; 2],
    /// Whether the end has frames for which the link had no room.
    pub(super) is_blocked: [bool; 2],
    /// The bit to flip in the next frame to an end.
    pub(super) flip: [Option<u16>; 2],
    /// The bit to flip in the payload of the next frame to an end that has one.
    pub(super) damage: [Option<u32>; 2],
    /// None on a stranger's link.
    pub(super) edge: Option<EdgeOf>,
    /// Whether the aggregator above has accepted a leave, or a first join, over it.
    pub(super) has_left: bool,
    pub(super) has_joined: bool,
    /// Whether a fault has interfered, so that refusals are no fault of the protocol.
    pub(super) is_tampered: bool,
    /// Until when an aggregator's end that has sent its last message waits for its peer to close.
    pub(super) lingers_until: [Option<u64>; 2],
    /// Whether the end takes datagrams from the other.
    pub(super) takes_datagrams: [bool; 2],
    /// Until when datagrams are lost.
    pub(super) datagrams_lost_until: u64,
    /// Unanswered segments and chunks.
    pub(super) windows: Windows,
    /// The newest request, in scenarios with replays.
    pub(super) last_request: Vec<u8>,
}

impl Link {
    pub(super) fn new(lower: (Holder, u32), upper: (Holder, u32), edge: Option<EdgeOf>) -> Self {
        let horizon = edge.as_ref().and_then(|edge| edge.horizon);
        Self {
            holders: [lower.0, upper.0],
            machines: [lower.1, upper.1],
            is_open: [true; 2],
            has_ended: [false; 2],
            queue: [VecDeque::new(), VecDeque::new()],
            last_at: [0; 2],
            held_until: [0; 2],
            is_blocked: [false; 2],
            flip: [None; 2],
            damage: [None; 2],
            edge,
            has_left: false,
            has_joined: false,
            is_tampered: false,
            lingers_until: [None; 2],
            takes_datagrams: [false; 2],
            datagrams_lost_until: 0,
            windows: horizon.map_or_else(Windows::default, Windows::with_horizon),
            last_request: Vec::new(),
        }
    }

    pub(super) fn holder(&self, end: End) -> Holder {
        self.holders[end as usize]
    }

    pub(super) fn is_open(&self, end: End) -> bool {
        self.is_open[end as usize]
    }

    /// Whether anything can still happen to frames on it.
    pub(super) fn is_whole(&self) -> bool {
        self.is_open == [true; 2] && self.has_ended == [false; 2]
    }

    pub(super) fn has_room(&self, to: End, frames_max: usize) -> bool {
        self.queue[to as usize].len() < frames_max
    }

    /// When a parcel that is sent now and takes `delay_ns` arrives: never before one that was sent
    /// earlier.
    /// was sent earlier.
    pub(super) fn arrives_at(&mut self, to: End, now: u64, delay_ns: u64) -> u64 {
        let at = &mut self.last_at[to as usize];
        *at = (*at).max(now + delay_ns);
        *at
    }
}
