//! A communicator cut into neighbouring blocks of ranks, with a representative rank for each block.

use crate::split::Split;

/// The blocks, numbered in rank order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    split: Split,
    pub(crate) blocks: u32,
    /// This rank represents its block; the first rank represents any other block.
    preferred: u32,
}

impl Blocks {
    /// As many blocks as the largest power of `radix` that is at most `ranks`. Every block has
    /// fewer than `radix` ranks.
    pub(crate) fn by_power(ranks: u32, radix: u32, preferred: u32) -> Self {
        let mut blocks = 1;
        while u64::from(blocks) * u64::from(radix) <= u64::from(ranks) {
            blocks *= radix;
        }
        Self { split: Split::new(u64::from(ranks), u64::from(blocks)), blocks, preferred }
    }

    /// Where the block of `rank` begins, and how many ranks it has.
    pub(crate) fn around(&self, rank: u32) -> (u32, u32) {
        let part = self.split.part(u64::from(self.block_of(rank)));
        (part.first as u32, part.elements as u32)
    }

    pub(crate) fn block_of(&self, rank: u32) -> u32 {
        self.split.part_of(u64::from(rank)) as u32
    }

    /// The rank that represents `block`.
    pub(crate) fn representative(&self, block: u32) -> u32 {
        if self.block_of(self.preferred) == block {
            self.preferred
        } else {
            self.split.part(u64::from(block)).first as u32
        }
    }

    pub(crate) fn is_representative(&self, rank: u32) -> bool {
        self.representative(self.block_of(rank)) == rank
    }
}
