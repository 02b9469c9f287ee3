//! Levels of groups: within each group all exchange whole vectors, and each folds them all.
//!
//! The ranks are cut into as many blocks as the highest level's radix says, each block into as many as the next lower
//! one says, and so on. At each level, from the lowest up, the blocks within one block are a group: each rank of a block
//! has the block's result, and needs those of the other blocks of the group. It gets them from the rank with its own
//! number within the block; where a block is smaller, from the one with that number modulo the block's size.

use super::flat::fold_slot;
use super::slot::{Place, Slot, send};
use crate::radices::Radices;
use crate::split::{Span, Split};

/// One phase among all ranks. No fewer ranks than there are have room in the radices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    pub(crate) radices: Radices,
}

/// A group of a level: neighbouring blocks of ranks, whose sizes differ by one at most.
struct Group {
    first: u64,
    split: Split,
    blocks: u32,
}

impl Group {
    fn within(ranks: Span, radix: u32) -> Self {
        let blocks = ranks.elements.min(radix.into());
        Self {
            first: ranks.first,
            split: Split::new(ranks.elements, blocks),
            blocks: blocks as u32,
        }
    }

    fn block_of(&self, rank: u32) -> u32 {
        self.split.part_of(u64::from(rank) - self.first) as u32
    }

    fn block(&self, block: u32) -> Span {
        let part = self.split.part(block.into());
        Span { first: self.first + part.first, elements: part.elements }
    }
}

impl Levels {
    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        let Some(group) = self.group(place, round) else { return Slot::End };
        let own = group.block_of(place.rank);
        let block = group.block(own);
        let number = u64::from(place.rank) - block.first;
        let others = group.blocks - 1;
        // To each other block first, beginning with the next, so that no rank receives from all at once. A block that is
        // larger by one has two ranks that need this one's.
        if index < 2 * others {
            let other = group.block((own + 1 + index / 2) % group.blocks);
            let to = number + u64::from(index % 2) * block.elements;
            let is_there = to < other.elements;
            let to = (other.first + to) as u32;
            return if is_there { send(to, place.whole()) } else { Slot::Nothing };
        }
        let member = index - 2 * others;
        if member == group.blocks {
            return Slot::EndOfRound;
        }
        let from = group.block(member);
        let peer = (from.first + number % from.elements) as u32;
        fold_slot(peer, member, own, place.whole())
    }

    /// The group of this rank at a level, from 0, the lowest.
    fn group(&self, place: &Place, level: u32) -> Option<Group> {
        let radix = self.radices.of_level(level)?;
        let above = (level + 1..).map_while(|above| self.radices.of_level(above)).count() as u32;
        let ranks = (0..above).fold(Span::between(0, place.ranks.into()), |ranks, down| {
            let radix = self.radices.of_level(level + above - down).unwrap_or(1);
            let group = Group::within(ranks, radix);
            group.block(group.block_of(place.rank))
        });
        Some(Group::within(ranks, radix))
    }
}
