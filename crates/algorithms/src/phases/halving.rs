//! Recursive halving and its way back, among blocks whose number is a power of two.
//!
//! At level j, a block and the one whose number differs in bit j share the span that both hold; the
//! one with a zero there keeps the lower half. Levels start at neighbours, so that what is combined
//! are always neighbouring ranges of ranks, in rank order.

use super::{Blocks, Place, Slot, receive, send};
use crate::split::Span;
use crate::step::Landing;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalvingWay {
    /// Halve and fold: every block ends with its share reduced.
    Reduce,
    /// Double: every block ends with everything.
    Allgather,
    /// Towards the block of this rank, the speaker of its block.
    Gather { root: u32 },
}

/// One phase among the speakers; other ranks do nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halving {
    pub(crate) blocks: Blocks,
    pub(crate) way: HalvingWay,
}

impl Halving {
    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        let levels = self.blocks.blocks.trailing_zeros();
        if round >= levels || !self.blocks.is_speaker(place.rank) {
            return Slot::End;
        }
        let block = self.blocks.block_of(place.rank);
        match self.way {
            HalvingWay::Reduce => self.reduce_slot(place, block, round, index),
            HalvingWay::Allgather => {
                let (partner, mine, theirs) = self.pair(place, block, levels - 1 - round);
                match index {
                    0 => send(partner, mine),
                    1 => receive(partner, theirs, Landing::Store),
                    _ => Slot::EndOfRound,
                }
            }
            HalvingWay::Gather { root } => {
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
        (self.blocks.speaker(partner), share(block), share(partner))
    }
}
