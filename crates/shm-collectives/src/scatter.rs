//! Scatter: one rank publishes slices of its vector, each other rank copies those of its block.

use std::ops::Range;

use super::copy::copy;
use super::operation::{Blocks, Operation};
use super::ring::Rings;
use super::rounds::{Round, one_way_ring};
use super::slices::Slices;

/// One slice of every block a round; the room of the sender's own stays empty.
pub(super) struct Scatter {
    operation: Operation,
    from: u32,
    slices: Slices,
    ranks: u32,
}

impl Scatter {
    /// # Safety
    /// `blocks` and the buffers are valid until the operation is over, and as the action asks.
    pub(super) unsafe fn new(
        operation: Operation,
        from: u32,
        blocks: Blocks,
        element_bytes: usize,
        ranks: u32,
    ) -> Self {
        let ring = one_way_ring(operation.len_bytes);
        // SAFETY: by this function's contract.
        let slices =
            unsafe { Slices::new(ring, ranks, blocks, element_bytes, operation.len_bytes) };
        Self { operation, from, slices, ranks }
    }
}

impl Round for Scatter {
    fn ring(&self) -> usize {
        self.slices.ring
    }

    fn fills(&self, rings: &Rings) -> bool {
        rings.local_rank == self.from
    }

    fn reads(&self, rings: &Rings) -> Range<u32> {
        let is_reader = rings.local_rank != self.from;
        self.from..self.from + u32::from(is_reader)
    }

    unsafe fn fill(&self, rings: &mut Rings) -> usize {
        let used_bytes = self.slices.used_bytes();
        // SAFETY: claimed and not published, by this function's contract.
        let slot = unsafe { rings.own_slot(self.slices.ring, used_bytes) };
        for rank in (0..self.ranks).filter(|rank| *rank != self.from) {
            let block = self.slices.block(rank);
            let slice = self.slices.slice_of(&block);
            let part = &mut slot[self.slices.place_of(rank, &block)..][..slice.len()];
            // SAFETY: the slice lies within the source, valid by the contract of `start`, and the
            // source is not in the segment.
            unsafe { copy(self.operation.source.add(slice.start), part.as_mut_ptr(), slice.len()) };
        }
        used_bytes
    }

    unsafe fn take(&self, rings: &Rings) {
        if rings.local_rank == self.from {
            return;
        }
        let block = self.slices.block(rings.local_rank);
        let slice = self.slices.slice_of(&block);
        if slice.is_empty() {
            return;
        }
        let place = self.slices.place_of(rings.local_rank, &block);
        let ring = self.slices.ring;
        // SAFETY: the flag of the sender was seen, by this function's contract; the target has room
        // for this rank's block, by the contract of `start`, and is not in the segment.
        unsafe {
            let slot = rings.slot(ring, self.from, rings.step(ring), self.slices.used_bytes());
            let part = &slot[place..][..slice.len()];
            copy(part.as_ptr(), self.operation.target.add(self.slices.offset), part.len());
        }
    }

    fn next(&mut self) -> bool {
        self.slices.next()
    }
}
