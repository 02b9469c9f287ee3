//! Allgather and gather: every rank writes its piece, everyone or one rank copies all pieces.

use std::ops::Range;

use super::copy::{copy, copy_short};
use super::operation::Operation;
use super::ring::Rings;
use super::rounds::{Round, one_way_ring, ring_for_all};
use super::segment::RINGS;

/// One piece of every rank's contribution a round.
pub(super) struct Allgather {
    operation: Operation,
    /// The rank that copies; none if all do.
    to: Option<u32>,
    ring: usize,
    /// Where the current piece begins, in a contribution.
    offset: usize,
}

impl Allgather {
    pub(super) fn new(operation: Operation, ranks: u32) -> Self {
        let ring = ring_for_all(operation.len_bytes, ranks);
        Self { operation, to: None, ring, offset: 0 }
    }

    /// A gather to rank `to`.
    pub(super) fn to(to: u32, operation: Operation) -> Self {
        let ring = one_way_ring(operation.len_bytes);
        Self { operation, to: Some(to), ring, offset: 0 }
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

    fn fills(&self, rings: &Rings) -> bool {
        self.to != Some(rings.local_rank)
    }

    fn reads(&self, rings: &Rings) -> Range<u32> {
        if self.to.is_none_or(|to| to == rings.local_rank) { 0..rings.ranks } else { 0..0 }
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
        if self.to.is_some_and(|to| to != rings.local_rank) {
            return;
        }
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
