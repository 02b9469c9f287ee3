//! Operations of a host group, and the steps each is cut into.
//!
//! A step is the use of one slot of the ring by every rank. Which steps an operation takes depends
//! on its kind, its length and the number of ranks only, so that all ranks count steps alike
//! without telling each other.

use std::ops::Range;

use super::combine::Combine;

/// What an operation does. Ranks are `0..ranks` of the group. `source`, `target` and `len_bytes`
/// are those of the [`Operation`]; where nothing else is said, both buffers have `len_bytes` bytes.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Action {
    /// Every rank's `target` becomes the reduction of all ranks' `source`, in rank order.
    Allreduce(&'static dyn Combine),
    /// The `target` of rank `to` becomes the reduction of all ranks' `source`, in rank order.
    Reduce {
        /// The rank that receives the result.
        to: u32,
        /// The operator and datatype.
        kernel: &'static dyn Combine,
    },
    /// Every other rank's `target` becomes the `source` of rank `from`.
    Broadcast {
        /// The rank that sends.
        from: u32,
    },
    /// The `target` of rank `to` becomes the `source` of rank `from`; the others do not wait.
    Transfer {
        /// The rank that sends.
        from: u32,
        /// The rank that receives; not `from`.
        to: u32,
    },
    /// No rank goes on before every rank has come.
    Barrier,
    /// The `target` of every rank becomes the reduction, in rank order, of its block of all ranks'
    /// `source`. In place, the whole vector lies where the target begins.
    ReduceScatter {
        /// The operator and datatype.
        kernel: &'static dyn Combine,
        /// Which elements are whose.
        blocks: Blocks,
    },
    /// Every rank's `target` becomes the `source` of all ranks, one after the other: `len_bytes` of
    /// each. In place, `source` is the rank's own part of the target.
    Allgather,
    /// The `target` of rank `to` becomes the `source` of all ranks, one after the other: `len_bytes`
    /// of each. In place there, `source` is the rank's own part of the target. The others do not wait.
    Gather {
        /// The rank that receives.
        to: u32,
    },
    /// The `target` of every other rank becomes its block of the `source` of rank `from`, which does
    /// not wait, and whose own block stays where it is.
    Scatter {
        /// The rank that sends.
        from: u32,
        /// Bytes of one element.
        element_bytes: usize,
        /// Which elements are whose.
        blocks: Blocks,
    },
    /// The `target` of every rank becomes the reduction of the `source` of the ranks up to it, in
    /// rank order: `((source of 0 OP source of 1) OP source of 2) ...`.
    Scan {
        /// The operator and datatype.
        kernel: &'static dyn Combine,
        /// Whether a rank's own `source` takes part in its result; if not, rank 0 has none.
        inclusive: bool,
    },
}

/// Which elements of the vector each rank gets, in a reduce-scatter or a scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// As many to each rank; the vector's length is a multiple of the number of ranks.
    Even,
    /// `ranks + 1` ascending numbers of elements, from 0 to all: where each rank's block begins, and
    /// where the last one ends. Equal at all ranks; in use as long as the buffers are.
    At(*const u64),
}

impl Action {
    /// The reduction kernel, of actions that have one.
    pub(super) fn kernel(&self) -> Option<&'static dyn Combine> {
        match *self {
            Self::Allreduce(kernel)
            | Self::Reduce { kernel, .. }
            | Self::ReduceScatter { kernel, .. }
            | Self::Scan { kernel, .. } => Some(kernel),
            Self::Broadcast { .. }
            | Self::Transfer { .. }
            | Self::Barrier
            | Self::Allgather
            | Self::Gather { .. }
            | Self::Scatter { .. } => None,
        }
    }
}

/// One operation of a group, as one rank sees it: what to do, and this rank's buffers.
///
/// Buffers are private memory of the rank, not the segment. The caller that [runs](crate::HostGroup::run)
/// the operation warrants that they are valid; an operation by itself does nothing with them.
#[derive(Clone, Copy)]
pub struct Operation {
    /// What to do; equal at all ranks.
    pub action: Action,
    /// This rank's contribution; not read where the action takes none from this rank.
    pub source: *const u8,
    /// Where this rank's result goes; may equal `source`; not written where the action gives this
    /// rank none.
    pub target: *mut u8,
    /// Length of `source` in bytes, equal at all ranks; a multiple of the element size. Of `target`
    /// too, where the action says nothing else. May be zero; is zero for a barrier.
    pub len_bytes: usize,
}

/// The use of one slot of a ring by every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Everyone writes its piece, everyone reduces all pieces.
    Exchange,
    /// Everyone writes its piece, `to` reduces them.
    Gather { to: u32 },
    /// `from` writes the piece, everyone copies it.
    Spread { from: u32 },
    /// `from` writes the piece, `to` copies it.
    Transfer { from: u32, to: u32 },
    /// Everyone writes its piece; what follows is always a `Collect` of the same piece.
    Scatter,
    /// Everyone reduces its share of the scattered pieces into its slot; the shares are copied
    /// by everyone, or by one rank.
    Collect { to: Option<u32> },
}

impl Step {
    /// Whether `rank` fills a slot in this step.
    pub(super) fn has_writer(self, rank: u32) -> bool {
        match self {
            Self::Exchange | Self::Scatter | Self::Collect { .. } => true,
            Self::Gather { to } => rank != to,
            Self::Spread { from } | Self::Transfer { from, .. } => rank == from,
        }
    }

    /// Whether this is the second half of a scattered piece.
    pub(super) fn is_collect(self) -> bool {
        matches!(self, Self::Collect { .. })
    }

    /// Whether `rank` waits for the writers of this step.
    pub(super) fn has_reader(self, rank: u32) -> bool {
        match self {
            Self::Exchange | Self::Scatter => true,
            Self::Gather { to } | Self::Transfer { to, .. } => rank == to,
            Self::Spread { from } => rank != from,
            Self::Collect { to } => to.is_none_or(|to| rank == to),
        }
    }
}

/// The steps of an operation on one piece of its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// The first step on every piece.
    pub(super) first: Step,
    /// The second step on every piece, if it takes two.
    pub(super) second: Option<Step>,
}

/// Up to this many ranks a short allreduce is one exchange; beyond, a gather and a release: the
/// exchange moves `ranks * (ranks - 1)` lines, the other `2 * (ranks - 1)`, in two hops.
pub const EXCHANGE_RANKS_MAX: u32 = 8;

impl Schedule {
    /// How `ranks` ranks perform `action` on a piece; `short` when the vector is one small slot.
    pub(super) fn new(action: &Action, ranks: u32, short: bool) -> Self {
        let one = |first| Self { first, second: None };
        let two = |first, second| Self { first, second: Some(second) };
        match *action {
            Action::Barrier | Action::Allreduce(_) if short && ranks <= EXCHANGE_RANKS_MAX => {
                one(Step::Exchange)
            }
            Action::Barrier => two(Step::Gather { to: 0 }, Step::Spread { from: 0 }),
            Action::Allreduce(_) if short => two(Step::Gather { to: 0 }, Step::Spread { from: 0 }),
            Action::Allreduce(_) if ranks == 2 => one(Step::Exchange),
            Action::Allreduce(_) => two(Step::Scatter, Step::Collect { to: None }),
            Action::Reduce { to, .. } if short || ranks == 2 => one(Step::Gather { to }),
            Action::Reduce { to, .. } => two(Step::Scatter, Step::Collect { to: Some(to) }),
            Action::Broadcast { from } => one(Step::Spread { from }),
            Action::Transfer { from, to } => one(Step::Transfer { from, to }),
            Action::ReduceScatter { .. }
            | Action::Allgather
            | Action::Gather { .. }
            | Action::Scatter { .. }
            | Action::Scan { .. } => {
                unreachable!("these take rounds, not steps: see `Job`")
            }
        }
    }
}

/// The part of a piece of `len_bytes` that `rank` reduces in a `Collect`: whole elements, all
/// shares together the whole piece, in rank order.
pub(super) fn share(len_bytes: usize, element_bytes: usize, rank: u32, ranks: u32) -> Range<usize> {
    let elements = len_bytes / element_bytes;
    let cut = |rank: u32| elements * rank as usize / ranks as usize * element_bytes;
    cut(rank)..cut(rank + 1)
}

/// The part of a vector of `len_bytes` that `rank` reduces alone, cut at multiples of `unit_bytes`:
/// all shares together the whole vector, in rank order.
pub(super) fn share_in_units(
    len_bytes: usize,
    unit_bytes: usize,
    rank: u32,
    ranks: u32,
) -> Range<usize> {
    let units = len_bytes.div_ceil(unit_bytes);
    let cut = |rank: u32| (units * rank as usize / ranks as usize * unit_bytes).min(len_bytes);
    cut(rank)..cut(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_the_piece_in_rank_order_at_element_boundaries() {
        for ranks in 1..10 {
            for elements in [0, 1, 2, 7, 8, 1000] {
                let mut end = 0;
                for rank in 0..ranks {
                    let share = share(elements * 12, 12, rank, ranks);
                    assert_eq!(share.start, end);
                    assert_eq!(share.start % 12, 0);
                    end = share.end;
                }
                assert_eq!(end, elements * 12);
                let mut end = 0;
                for rank in 0..ranks {
                    let share = share_in_units(elements * 12, 48, rank, ranks);
                    assert_eq!(share.start, end);
                    assert!(share.is_empty() || share.start.is_multiple_of(48));
                    end = share.end;
                }
                assert_eq!(end, elements * 12);
            }
        }
    }
}
