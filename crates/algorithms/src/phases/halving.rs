//! Recursive halving and recursive doubling, among blocks whose number is a power of two.
//!
//! At level j, a block and the one whose number differs in bit j divide the span that both hold: the
//! one with a zero in bit j keeps the lower half. Level 0 pairs neighbours, so every fold combines
//! neighbouring ranges of ranks, in rank order.

use super::blocks::Blocks;
use super::slot::{Place, Slot, receive, send};
use crate::split::Span;
use crate::step::Landing;

/// What the phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalvingKind {
    /// Halve and fold: every block ends with its share, reduced.
    ReduceScatter,
    /// Double: every block ends with the whole vector.
    Allgather,
    /// Gather at this rank, which represents its block.
    Gather { root: u32 },
}

/// One phase among the blocks' representatives; other ranks do nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halving {
    pub(crate) blocks: Blocks,
    pub(crate) kind: HalvingKind,
}

impl Halving {
    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        let levels = self.blocks.blocks.trailing_zeros();
        if round >= levels || !self.blocks.is_representative(place.rank) {
            return Slot::End;
        }
        let block = self.blocks.block_of(place.rank);
        match self.kind {
            HalvingKind::ReduceScatter => self.reduce_slot(place, block, round, index),
            HalvingKind::Allgather => {
                let (partner, mine, theirs) = self.pair(place, block, levels - 1 - round);
                match index {
                    0 => send(partner, mine),
                    1 => receive(partner, theirs, Landing::Store),
                    _ => Slot::EndOfRound,
                }
            }
            HalvingKind::Gather { root } => {
                let level = levels - 1 - round;
                let differ = block ^ self.blocks.block_of(root);
                let (partner, mine, theirs) = self.pair(place, block, level);
                match (index, differ >> level) {
                    (0, 0) => receive(partner, theirs, Landing::Store),
                    (0, 1) => send(partner, mine),
                    (0, _) => Slot::End,
                    _ => Slot::EndOfRound,
                }
            }
        }
    }

    fn reduce_slot(&self, place: &Place, block: u32, level: u32, index: u32) -> Slot {
        let (partner, keep, give) = self.pair(place, block, level);
        match index {
            0 => send(partner, give),
            1 if block >> level & 1 == 1 => receive(partner, keep, Landing::FoldAsLeft),
            1 => receive(partner, keep, Landing::FoldAsRight),
            _ => Slot::EndOfRound,
        }
    }

    /// The partner at a level, and the shares of both after it.
    fn pair(&self, place: &Place, block: u32, level: u32) -> (u32, Span, Span) {
        let partner = block ^ (1 << level);
        let share =
            |of: u32| (0..=level).fold(place.whole(), |span, bit| span.half(of >> bit & 1 == 1));
        (self.blocks.representative(partner), share(block), share(partner))
    }
}
