//! Recursive k-ing: groups of `radix` blocks, at growing distance, exchange whole vectors.

use super::blocks::Blocks;
use super::flat::fold_slot;
use super::slot::{Place, Slot, power, send};

/// One phase among the representatives of blocks whose number is a power of `radix`; other ranks do
/// nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) blocks: Blocks,
    pub(crate) radix: u32,
}

impl Exchange {
    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        let distance = power(self.radix, round);
        if distance >= u64::from(self.blocks.blocks) || !self.blocks.is_representative(place.rank) {
            return Slot::End;
        }
        let (distance, radix) = (distance as u32, self.radix);
        let block = self.blocks.block_of(place.rank);
        let digit = block / distance % radix;
        let first = block - digit * distance;
        let peer = |member: u32| self.blocks.representative(first + member * distance);
        // Each member sends to its successor first, so that no member receives from all at once.
        if index < radix - 1 {
            let member = (u64::from(digit) + 1 + u64::from(index)) % u64::from(radix);
            return send(peer(member as u32), place.whole());
        }
        let member = index - (radix - 1);
        if member == radix {
            return Slot::EndOfRound;
        }
        fold_slot(peer(member), member, digit, place.whole())
    }
}
