//! Allgather: every rank writes its piece, everyone copies all pieces.

use super::copy::{copy, copy_short};
use super::operation::Operation;
use super::ring::Rings;
use super::rounds::{Round, ring_for_all};
use super::segment::RINGS;

/// One piece of every rank's contribution a round.
pub(super) struct Allgather {
    operation: Operation,
    ring: usize,
    /// Where the current piece begins, in a contribution.
    offset: usize,
}

impl Allgather {
    pub(super) fn new(operation: Operation, ranks: u32) -> Self {
        let ring = ring_for_all(operation.len_bytes, ranks);
        Self { operation, ring, offset: 0 }
    }

    fn piece_bytes(&self) -> usize {
        RINGS[self.ring].capacity_bytes.min(self.operation.len_bytes - self.offset)
    }

    /// Where the current piece of `rank`'s contribution goes.
    ///
    /// # Safety
    /// `rank` is one of the group, and the target has room for all.
    unsafe fn place_of(&self, rank: u32) -> *mut u8 {
        let offset = rank as usize * self.operation.len_bytes + self.offset;
        // SAFETY: inside the target, which has room for `len_bytes` of every rank, by this
        // function's contract.
        unsafe { self.operation.target.add(offset) }
    }
}

impl Round for Allgather {
    fn ring(&self) -> usize {
        self.ring
    }

    unsafe fn fill(&self, rings: &mut Rings) -> usize {
        let len_bytes = self.piece_bytes();
        // SAFETY: the piece lies within the source, valid until the operation is over by the
        // contract of `start`; the slot is claimed, by this function's contract, and the source is
        // not in the segment.
        unsafe {
            let source = self.operation.source.add(self.offset);
            copy_short(source, rings.own_slot(self.ring, len_bytes));
        }
        len_bytes
    }

    unsafe fn take(&self, rings: &Rings) {
        let len_bytes = self.piece_bytes();
        let step = rings.step(self.ring);
        for peer in rings.peers() {
            // SAFETY: the flag of `peer` was seen, by this function's contract; the target has room
            // for all contributions, by the contract of `start`.
            unsafe {
                let piece = rings.slot(self.ring, peer, step, len_bytes);
                copy(piece.as_ptr(), self.place_of(peer), len_bytes);
            }
        }
        // SAFETY: the source is this rank's part of the target or does not overlap it, by the
        // contract of `start`; it is copied only where it is not that part.
        unsafe {
            let (mine, place) =
                (self.operation.source.add(self.offset), self.place_of(rings.local_rank));
            if mine != place.cast_const() {
                copy(mine, place, len_bytes);
            }
        }
    }

    fn next(&mut self) -> bool {
        self.offset += self.piece_bytes();
        self.offset < self.operation.len_bytes
    }
}
