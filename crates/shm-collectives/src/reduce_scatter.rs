//! Reduce-scatter: every rank publishes slices of its vector, each rank reduces those of its block.
//!
//! A round takes the same slice of every block, so that all ranks reduce at the same time: with
//! pieces of the vector as it lies, one rank would reduce while the others wait.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

use super::combine::{Combine, reduce_in_order};
use super::copy::copy;
use super::operation::{Blocks, Operation};
use super::ring::Rings;
use super::rounds::{Round, ring_for_all};
use super::segment::{EXCHANGE_RING, LONG_RING, RINGS};

/// One slice of every block a round.
///
/// In a slot there is room for the slices of all ranks, in their order. A rank leaves the room for
/// its own empty, unless it works in place: then the result may overwrite its contribution.
pub(super) struct ReduceScatter {
    operation: Operation,
    kernel: &'static dyn Combine,
    blocks: Blocks,
    ring: usize,
    ranks: u32,
    /// This rank's block, in bytes of the vector.
    own: Range<usize>,
    /// Bytes of a slice, whole elements: a block's last one may be shorter, or empty.
    slice_bytes: usize,
    /// Bytes of the longest block.
    longest_bytes: usize,
    /// Where the current slice begins, in a block.
    offset: usize,
}

impl ReduceScatter {
    /// # Safety
    /// `blocks` and the buffers are valid until the operation is over, and as the action asks.
    pub(super) unsafe fn new(
        operation: Operation,
        kernel: &'static dyn Combine,
        blocks: Blocks,
        rings: &Rings,
    ) -> Self {
        let ranks = rings.ranks;
        let ring = ring_for_all(operation.len_bytes, ranks);
        let mut reduce_scatter = Self {
            operation,
            kernel,
            blocks,
            ring,
            ranks,
            own: 0..0,
            slice_bytes: 0,
            longest_bytes: 0,
            offset: 0,
        };
        reduce_scatter.own = reduce_scatter.block(rings.local_rank);
        let lengths = (0..ranks).map(|rank| reduce_scatter.block(rank).len());
        reduce_scatter.longest_bytes = lengths.max().unwrap_or(0);
        reduce_scatter.slice_bytes = if ring != LONG_RING {
            reduce_scatter.longest_bytes
        } else {
            let room = RINGS[ring].capacity_bytes / ranks as usize;
            room - room % kernel.element_bytes()
        };
        reduce_scatter
    }

    /// The block of `rank`, in bytes of the vector.
    fn block(&self, rank: u32) -> Range<usize> {
        let Operation { len_bytes, .. } = self.operation;
        match self.blocks {
            Blocks::Even => {
                let block = len_bytes / self.ranks as usize;
                rank as usize * block..(rank as usize + 1) * block
            }
            Blocks::At(cuts) => {
                let cut = |at: u32| {
                    // SAFETY: there are `ranks + 1` of them, valid until the operation is over, by
                    // the contract of `start`.
                    let elements = unsafe { cuts.add(at as usize).read() };
                    // A cut beyond the vector is the caller's fault; it must not reach memory.
                    (elements as usize).saturating_mul(self.kernel.element_bytes()).min(len_bytes)
                };
                cut(rank)..cut(rank + 1).max(cut(rank))
            }
        }
    }

    /// The current slice of a block, in bytes of the vector.
    fn slice_of(&self, block: &Range<usize>) -> Range<usize> {
        let start = block.end.min(block.start + self.offset);
        start..block.end.min(start + self.slice_bytes)
    }

    /// Where a slot has the slice of `rank`, whose block is `block`.
    fn place_of(&self, rank: u32, block: &Range<usize>) -> usize {
        // A short vector is one slice of every block, so it lies in the slot as it is.
        if self.ring == LONG_RING { rank as usize * self.slice_bytes } else { block.start }
    }

    fn is_in_place(&self) -> bool {
        self.operation.source == self.operation.target.cast_const()
    }

    /// How much of a slot is in use.
    fn used_bytes(&self) -> usize {
        if self.ring == LONG_RING {
            self.ranks as usize * self.slice_bytes
        } else {
            self.operation.len_bytes
        }
    }

    /// Reduces all ranks' slices of this rank's block; its own contribution is `mine`.
    ///
    /// # Safety
    /// The flags of all other ranks were seen. `mine` does not overlap the current slice of the
    /// target.
    unsafe fn reduce(&self, rings: &Rings, mine: &[u8]) {
        let own = rings.local_rank;
        let place = self.place_of(own, &self.own);
        let (step, used_bytes) = (rings.step(self.ring), self.used_bytes());
        // SAFETY: the target has room for this rank's block, by the contract of `start`; it is
        // apart from the segment, and from `mine`, by this function's contract.
        let target = unsafe {
            slice::from_raw_parts_mut(self.operation.target.add(self.offset), mine.len())
        };
        reduce_in_order(self.kernel, target, self.ranks, |rank, part| {
            if rank == own {
                return &mine[part];
            }
            // SAFETY: the flag of `rank` was seen, by this function's contract.
            let slot = unsafe { rings.slot(self.ring, rank, step, used_bytes) };
            &slot[place + part.start..place + part.end]
        });
    }
}

impl Round for ReduceScatter {
    fn ring(&self) -> usize {
        self.ring
    }

    unsafe fn fill(&self, rings: &mut Rings) -> usize {
        let used_bytes = self.used_bytes();
        let own = rings.local_rank;
        let puts_own = self.is_in_place() && self.ring != EXCHANGE_RING;
        // SAFETY: claimed and not published, by this function's contract.
        let slot = unsafe { rings.own_slot(self.ring, used_bytes) };
        for rank in (0..self.ranks).filter(|rank| *rank != own || puts_own) {
            let block = self.block(rank);
            let slice = self.slice_of(&block);
            let part = &mut slot[self.place_of(rank, &block)..][..slice.len()];
            // SAFETY: the slice lies within the source, valid by the contract of `start`, and the
            // source is not in the segment.
            unsafe { copy(self.operation.source.add(slice.start), part.as_mut_ptr(), slice.len()) };
        }
        used_bytes
    }

    unsafe fn take(&self, rings: &Rings) {
        let slice = self.slice_of(&self.own);
        if slice.is_empty() {
            return;
        }
        // SAFETY: the slice lies within the source, valid by the contract of `start`.
        let mine = unsafe { self.operation.source.add(slice.start) };
        let mut aside = [MaybeUninit::<u8>::uninit(); RINGS[EXCHANGE_RING].capacity_bytes];
        let mine = if !self.is_in_place() {
            mine
        } else if self.ring == EXCHANGE_RING {
            // The peer may be filling this rank's exchange slot already. SAFETY: the slice lies
            // within the vector, which is not longer than an exchange slot, as `aside` is; no other
            // pointer refers to `aside`.
            unsafe { copy(mine, aside.as_mut_ptr().cast(), slice.len()) };
            aside.as_ptr().cast()
        } else {
            let place = self.place_of(rings.local_rank, &self.own);
            // SAFETY: this rank's own slot of the step, filled above and not claimed again yet.
            let slot = unsafe {
                rings.slot(self.ring, rings.local_rank, rings.step(self.ring), self.used_bytes())
            };
            slot[place..][..slice.len()].as_ptr()
        };
        // SAFETY: all flags were seen, by this function's contract. `mine` is as long as the slice
        // in each of the three cases, and apart from the target: not in place, or a copy, or a
        // slot.
        unsafe { self.reduce(rings, slice::from_raw_parts(mine, slice.len())) };
    }

    fn next(&mut self) -> bool {
        self.offset += self.slice_bytes;
        self.offset < self.longest_bytes
    }
}
