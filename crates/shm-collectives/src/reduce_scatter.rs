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
use super::segment::{EXCHANGE_RING, RINGS};
use super::slices::Slices;

/// One slice of every block a round.
///
/// A rank leaves the room for its own slice empty, unless it works in place: then the result may
/// overwrite its contribution.
pub(super) struct ReduceScatter {
    operation: Operation,
    kernel: &'static dyn Combine,
    slices: Slices,
    ranks: u32,
    /// This rank's block, in bytes of the vector.
    own: Range<usize>,
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
        let (ranks, len_bytes) = (rings.ranks, operation.len_bytes);
        let ring = ring_for_all(len_bytes, ranks);
        // SAFETY: by this function's contract.
        let slices = unsafe { Slices::new(ring, ranks, blocks, kernel.element_bytes(), len_bytes) };
        let own = slices.block(rings.local_rank);
        Self { operation, kernel, slices, ranks, own }
    }

    fn is_in_place(&self) -> bool {
        self.operation.source == self.operation.target.cast_const()
    }

    /// Reduces all ranks' slices of this rank's block; its own contribution is `mine`.
    ///
    /// # Safety
    /// The flags of all other ranks were seen. `mine` does not overlap the current slice of the
    /// target.
    unsafe fn reduce(&self, rings: &Rings, mine: &[u8]) {
        let own = rings.local_rank;
        let place = self.slices.place_of(own, &self.own);
        let (step, used_bytes) = (rings.step(self.slices.ring), self.slices.used_bytes());
        // SAFETY: the target has room for this rank's block, by the contract of `start`; it is
        // apart from the segment, and from `mine`, by this function's contract.
        let target = unsafe {
            slice::from_raw_parts_mut(self.operation.target.add(self.slices.offset), mine.len())
        };
        reduce_in_order(self.kernel, target, self.ranks, |rank, part| {
            if rank == own {
                return &mine[part];
            }
            // SAFETY: the flag of `rank` was seen, by this function's contract.
            let slot = unsafe { rings.slot(self.slices.ring, rank, step, used_bytes) };
            &slot[place + part.start..place + part.end]
        });
    }
}

impl Round for ReduceScatter {
    fn ring(&self) -> usize {
        self.slices.ring
    }

    unsafe fn fill(&self, rings: &mut Rings) -> usize {
        let used_bytes = self.slices.used_bytes();
        let own = rings.local_rank;
        let puts_own = self.is_in_place() && self.slices.ring != EXCHANGE_RING;
        // SAFETY: claimed and not published, by this function's contract.
        let slot = unsafe { rings.own_slot(self.slices.ring, used_bytes) };
        for rank in (0..self.ranks).filter(|rank| *rank != own || puts_own) {
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
        let slice = self.slices.slice_of(&self.own);
        if slice.is_empty() {
            return;
        }
        // SAFETY: the slice lies within the source, valid by the contract of `start`.
        let mine = unsafe { self.operation.source.add(slice.start) };
        let mut aside = [MaybeUninit::<u8>::uninit(); RINGS[EXCHANGE_RING].capacity_bytes];
        let mine = if !self.is_in_place() {
            mine
        } else if self.slices.ring == EXCHANGE_RING {
            // The peer may be filling this rank's exchange slot already. SAFETY: the slice lies
            // within the vector, which is not longer than an exchange slot, as `aside` is; no other
            // pointer refers to `aside`.
            unsafe { copy(mine, aside.as_mut_ptr().cast(), slice.len()) };
            aside.as_ptr().cast()
        } else {
            let place = self.slices.place_of(rings.local_rank, &self.own);
            // SAFETY: this rank's own slot of the step, filled above and not claimed again yet.
            let slot = unsafe {
                rings.slot(
                    self.slices.ring,
                    rings.local_rank,
                    rings.step(self.slices.ring),
                    self.slices.used_bytes(),
                )
            };
            slot[place..][..slice.len()].as_ptr()
        };
        // SAFETY: all flags were seen, by this function's contract. `mine` is as long as the slice
        // in each of the three cases, and apart from the target: not in place, or a copy, or a
        // slot.
        unsafe { self.reduce(rings, slice::from_raw_parts(mine, slice.len())) };
    }

    fn next(&mut self) -> bool {
        self.slices.next()
    }
}
