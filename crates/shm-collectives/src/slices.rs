//! A vector's blocks, one for each rank, cut into slices: a round takes the same slice of every block.

use std::ops::Range;

use super::operation::Blocks;
use super::segment::{LONG_RING, RINGS};

/// The slices of one operation, and the current one.
///
/// In a slot there is room for the slices of all ranks, in their order.
pub(super) struct Slices {
    /// The ring that the slots are on.
    pub(super) ring: usize,
    ranks: u32,
    blocks: Blocks,
    element_bytes: usize,
    /// Length of the vector.
    len_bytes: usize,
    /// Bytes of a slice, whole elements: a block's last one may be shorter, or empty.
    slice_bytes: usize,
    /// Bytes of the longest block.
    longest_bytes: usize,
    /// Where the current slice begins, in a block.
    pub(super) offset: usize,
}

impl Slices {
    /// The slices of a vector of `len_bytes`, among `ranks` ranks.
    ///
    /// # Safety
    /// `blocks` are as their type says, and valid until the operation is over.
    pub(super) unsafe fn new(
        ring: usize,
        ranks: u32,
        blocks: Blocks,
        element_bytes: usize,
        len_bytes: usize,
    ) -> Self {
        let mut slices = Self {
            ring,
            ranks,
            blocks,
            element_bytes,
            len_bytes,
            slice_bytes: 0,
            longest_bytes: 0,
            offset: 0,
        };
        let lengths = (0..ranks).map(|rank| slices.block(rank).len());
        slices.longest_bytes = lengths.max().unwrap_or(0);
        slices.slice_bytes = if ring == LONG_RING {
            let room = RINGS[ring].capacity_bytes / ranks as usize;
            room - room % element_bytes
        } else {
            slices.longest_bytes
        };
        slices
    }

    /// The block of `rank`, in bytes of the vector.
    pub(super) fn block(&self, rank: u32) -> Range<usize> {
        match self.blocks {
            Blocks::Even => {
                let block = self.len_bytes / self.ranks as usize;
                rank as usize * block..(rank as usize + 1) * block
            }
            Blocks::At(cuts) => {
                let cut = |at: u32| {
                    // SAFETY: there are `ranks + 1` of them, valid until the operation is over, by
                    // the contract of `new`.
                    let elements = unsafe { cuts.add(at as usize).read() };
                    // A cut beyond the vector is the caller's fault; it must not reach memory.
                    (elements as usize).saturating_mul(self.element_bytes).min(self.len_bytes)
                };
                cut(rank)..cut(rank + 1).max(cut(rank))
            }
        }
    }

    /// The current slice of a block, in bytes of the vector.
    pub(super) fn slice_of(&self, block: &Range<usize>) -> Range<usize> {
        let start = block.end.min(block.start + self.offset);
        start..block.end.min(start + self.slice_bytes)
    }

    /// Where a slot has the slice of `rank`, whose block is `block`.
    pub(super) fn place_of(&self, rank: u32, block: &Range<usize>) -> usize {
        // A short vector is one slice of every block, so it lies in the slot as it is.
        if self.ring == LONG_RING { rank as usize * self.slice_bytes } else { block.start }
    }

    /// How much of a slot is in use.
    pub(super) fn used_bytes(&self) -> usize {
        if self.ring == LONG_RING { self.ranks as usize * self.slice_bytes } else { self.len_bytes }
    }

    /// Goes to the next slice; false if there is none.
    pub(super) fn next(&mut self) -> bool {
        self.offset += self.slice_bytes;
        self.offset < self.longest_bytes
    }
}
