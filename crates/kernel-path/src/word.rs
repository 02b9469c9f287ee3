//! The word of a slot: which sequence it holds, who has it, and whose contributions are there.

use tributary_wire::Sequence;

use crate::layout::CHILDREN_MAX;

/// A slot's word; `ebpf/tables.h` says what its bits mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub(crate) u64);

/// How far a slot has come, and who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Never used.
    Empty,
    /// The program is writing down which segment it holds, or the result from the parent.
    Writing,
    /// The program gathers contributions.
    Gathering,
    /// The program has made the result.
    Done,
    /// The process has it.
    OfProcess,
    /// The process has handed down its result.
    DoneByProcess,
    /// The program has gathered all contributions, and the process is to fold them.
    Gathered,
    /// The program has sent the parent what it made of all contributions.
    Forwarded,
}

impl Word {
    pub(crate) fn new(sequence: Sequence, phase: Phase) -> Self {
        Self(u64::from(sequence.0) << 32 | phase as u64)
    }

    /// The sequence that the slot holds, if it is in use.
    #[must_use]
    pub fn sequence(self) -> Sequence {
        Sequence((self.0 >> 32) as u32)
    }

    /// How far the slot has come.
    #[must_use]
    pub fn phase(self) -> Phase {
        match self.0 & 7 {
            0 => Phase::Empty,
            1 => Phase::Writing,
            2 => Phase::Gathering,
            3 => Phase::Done,
            4 => Phase::OfProcess,
            5 => Phase::DoneByProcess,
            6 => Phase::Gathered,
            _ => Phase::Forwarded,
        }
    }

    /// Whether the slot holds a sequence.
    #[must_use]
    pub fn holds(self, sequence: Sequence) -> bool {
        self.phase() != Phase::Empty && self.sequence() == sequence
    }

    /// Whether the slot has gone beyond this sequence. It is opened for one two windows later only when all are
    /// complete up to one window later, to which every child has contributed with this one's result in its hands.
    pub(crate) fn is_past(self, sequence: Sequence) -> bool {
        let behind = self.sequence().distance_from(sequence);
        self.phase() != Phase::Empty && (1..1 << 31).contains(&behind)
    }

    /// Whether the process may open the slot for this sequence: it was not used, or an earlier one is done, or its
    /// members may have the result before this aggregator has it.
    pub(crate) fn is_free_for(self, sequence: Sequence, may_be_overtaken: bool) -> bool {
        let ahead = sequence.distance_from(self.sequence());
        let is_later = (1..1 << 31).contains(&ahead);
        match self.phase() {
            Phase::Empty => true,
            Phase::Done | Phase::DoneByProcess => is_later,
            Phase::OfProcess | Phase::Forwarded => may_be_overtaken && is_later,
            Phase::Writing | Phase::Gathering | Phase::Gathered => false,
        }
    }

    /// Whether a run of the program writes in the slot: its segment, a lane, or the result.
    pub(crate) fn is_being_written(self, children: usize) -> bool {
        match self.phase() {
            Phase::Writing => true,
            Phase::Gathering => {
                self.filled_lanes() == children || self.filled_lanes() < self.claims()
            }
            _ => false,
        }
    }

    /// How many children have claimed their lane.
    #[must_use]
    pub fn claims(self) -> usize {
        (0..CHILDREN_MAX).filter(|child| self.has_claim(*child)).count()
    }

    /// How many of them have filled it.
    #[must_use]
    pub fn filled_lanes(self) -> usize {
        (self.0 >> 3 & 31) as usize
    }

    /// Whether a child has claimed its lane.
    #[must_use]
    pub fn has_claim(self, child: usize) -> bool {
        debug_assert!(child < CHILDREN_MAX);
        self.0 >> (8 + child) & 1 == 1
    }
}
