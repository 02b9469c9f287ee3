//! One outstanding-operation slot.

use alloc::boxed::Box;
use alloc::vec;

use tributary_wire::frame::{Part, Shape};
use tributary_wire::{ChildIndex, OperationNumber, Sequence};

use super::arrivals::Arrivals;
use crate::Carrier;

/// How far a slot's segment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for children.
    Gathering,
    /// Sent upward, waiting for the result.
    Forwarded,
    /// The result lies in the accumulator, for repeats, until the slot is used again.
    Done,
}

/// The segment a slot holds, and which children it has heard.
#[derive(Debug)]
pub(super) struct Slot {
    /// The segment as its first contributor described it; none before first use.
    pub(super) part: Option<Part>,
    pub(super) phase: Phase,
    /// The first child whose contribution has not been reduced.
    pub(super) next_child: u16,
    /// The child that brought a broadcast's data.
    pub(super) data_from: Option<ChildIndex>,
    /// Whether the accumulator holds anything.
    pub(super) has_data: bool,
    /// The children whose contribution has come.
    pub(super) arrived: Arrivals,
    /// How each child's contribution came, as far as the newest attempt is known: its result goes
    /// the same way.
    heard: Box<[Heard]>,
}

/// How a contribution came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    pub(super) carrier: Carrier,
    pub(super) attempt: u8,
}

impl Slot {
    pub(super) fn new(children: usize) -> Self {
        Self {
            part: None,
            phase: Phase::Done,
            next_child: 0,
            data_from: None,
            has_data: false,
            arrived: Arrivals::new(children),
            heard: vec![Heard::default(); children].into_boxed_slice(),
        }
    }

    /// Starts over for a new segment.
    pub(super) fn open(&mut self, part: &Part) {
        self.part = Some(*part);
        self.phase = Phase::Gathering;
        self.next_child = 0;
        self.data_from = None;
        self.has_data = false;
        self.arrived.clear();
    }

    /// Forgets what it held: the slot serves another group from now on.
    pub(super) fn forget(&mut self) {
        self.part = None;
        self.phase = Phase::Done;
    }

    pub(super) fn holds(&self, sequence: Sequence) -> bool {
        self.part.is_some_and(|part| part.sequence == sequence)
    }

    /// Whether its segment is one of this operation's.
    pub(super) fn is_of(&self, operation: OperationNumber) -> bool {
        self.part.is_some_and(|part| part.operation == operation)
    }

    /// Whether the slot has moved on past a number. It moves on only when every member has had
    /// that number's result, so whatever still comes for it is a late copy.
    pub(super) fn is_past(&self, sequence: Sequence) -> bool {
        let ahead = self.part.map_or(0, |part| part.sequence.distance_from(sequence));
        (1..1 << 31).contains(&ahead)
    }

    pub(super) fn shape(&self) -> Shape {
        self.part.expect("an open slot has a part").shape
    }

    pub(super) fn heard(&self, child: ChildIndex) -> Heard {
        self.heard[usize::from(child.0)]
    }

    /// Notes how a repeat came; an attempt that was overtaken changes nothing.
    pub(super) fn hear_again(&mut self, child: ChildIndex, heard: Heard) {
        let before = &mut self.heard[usize::from(child.0)];
        // Attempts are counted only so far, and the last goes over the link.
        if heard.attempt > before.attempt || heard.carrier == Carrier::Link {
            *before = heard;
        }
    }

    pub(super) fn mark_arrived(&mut self, child: ChildIndex, heard: Heard) {
        let is_new = self.arrived.mark(child);
        debug_assert!(is_new, "a repeat is not counted");
        self.heard[usize::from(child.0)] = heard;
    }

    /// Whether a further contributor means the same segment. A broadcast's members differ in
    /// whether they bring data, and in nothing else.
    pub(super) fn agrees_with(&self, part: &Part) -> bool {
        self.part.is_some_and(|ours| ours.is_same_segment(part))
    }
}
