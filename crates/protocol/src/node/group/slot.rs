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

/// The segment that a slot holds, and which children have contributed to it.
#[derive(Debug)]
pub(in crate::node) struct Slot {
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
    /// How the newest attempt of each child's contribution came. The child's result goes the same
    /// way.
    newest_attempt: Box<[NewestAttempt]>,
}

/// How a contribution came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewestAttempt {
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
            newest_attempt: vec![NewestAttempt::default(); children].into_boxed_slice(),
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

    /// Forgets the segment: the slot serves another group from now on.
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

    /// Whether the slot has moved on past a number. It does so only when every member has that
    /// number's result, so a frame for it is a late copy.
    pub(super) fn is_past(&self, sequence: Sequence) -> bool {
        let ahead = self.part.map_or(0, |part| part.sequence.distance_from(sequence));
        (1..1 << 31).contains(&ahead)
    }

    pub(super) fn shape(&self) -> Shape {
        self.part.expect("an open slot has a part").shape
    }

    pub(super) fn newest_attempt(&self, child: ChildIndex) -> NewestAttempt {
        self.newest_attempt[usize::from(child.0)]
    }

    /// Notes how a repeat came. An attempt that a newer one has overtaken changes nothing.
    pub(super) fn note_repeat(&mut self, child: ChildIndex, newest_attempt: NewestAttempt) {
        let before = &mut self.newest_attempt[usize::from(child.0)];
        // The attempt number saturates, and the last attempt goes over the link.
        if newest_attempt.attempt > before.attempt || newest_attempt.carrier == Carrier::Link {
            *before = newest_attempt;
        }
    }

    pub(super) fn mark_arrived(&mut self, child: ChildIndex, newest_attempt: NewestAttempt) {
        let is_new = self.arrived.mark(child);
        debug_assert!(is_new, "a repeat is not counted");
        self.newest_attempt[usize::from(child.0)] = newest_attempt;
    }

    /// Whether another contribution is for the same segment. Contributions to a broadcast may
    /// differ in whether they have data, and in nothing else.
    pub(super) fn agrees_with(&self, part: &Part) -> bool {
        self.part.is_some_and(|ours| ours.is_same_segment(part))
    }
}
