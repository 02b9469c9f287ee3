//! Scan and exclusive scan: every rank reduces what the ranks before it contribute.
//!
//! A short vector takes one hop: every rank writes its contribution, and reduces those before it.
//! That reads `ranks / 2` vectors a rank on average, so a long vector goes along a chain instead: a
//! rank reads the reduction so far from the one before it, adds its own contribution, and leaves
//! the sum to the next, piece by piece. Either way the order is `((0 OP 1) OP 2) ...`, so the last
//! rank of an inclusive scan has the same bits as an allreduce gives. A type that is accumulated in
//! a wider one cannot be handed on without being rounded at every rank, and never takes the chain.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

use super::combine::{Combine, reduce_in_order};
use super::copy::{copy, copy_short};
use super::operation::Operation;
use super::ring::{Awaited, AwaitedEvent, Rings};
use super::rounds::{Round, one_way_ring};
use super::segment::{LONG_RING, RINGS, SHORT_RING};

/// One piece of every rank's contribution a round; each rank reads those of the ranks before it.
pub(super) struct Prefixes {
    operation: Operation,
    kernel: &'static dyn Combine,
    inclusive: bool,
    ring: usize,
    /// Bytes of a piece, whole elements.
    piece_bytes: usize,
    /// Where the current piece begins.
    offset: usize,
}

impl Prefixes {
    pub(super) fn new(operation: Operation, kernel: &'static dyn Combine, inclusive: bool) -> Self {
        let ring = one_way_ring(operation.len_bytes);
        let capacity_bytes = RINGS[ring].capacity_bytes;
        let piece_bytes = capacity_bytes - capacity_bytes % kernel.element_bytes();
        Self { operation, kernel, inclusive, ring, piece_bytes, offset: 0 }
    }

    fn len_bytes(&self) -> usize {
        self.piece_bytes.min(self.operation.len_bytes - self.offset)
    }

    fn is_in_place(&self) -> bool {
        self.operation.source == self.operation.target.cast_const()
    }
}

impl Round for Prefixes {
    fn ring(&self) -> usize {
        self.ring
    }

    /// Nobody reads what the last rank contributes, but itself, if its result overwrites it.
    fn fills(&self, rings: &Rings) -> bool {
        rings.local_rank + 1 < rings.ranks || self.inclusive && self.is_in_place()
    }

    fn reads(&self, rings: &Rings) -> Range<u32> {
        0..rings.local_rank
    }

    unsafe fn fill(&self, rings: &mut Rings) -> usize {
        let len_bytes = self.len_bytes();
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
        let own = rings.local_rank;
        let contributions = own + u32::from(self.inclusive);
        let is_there_already = contributions == 1 && own == 0 && self.is_in_place();
        if contributions == 0 || is_there_already {
            return;
        }
        let (step, len_bytes) = (rings.step(self.ring), self.len_bytes());
        let piece = |rank: u32| {
            // SAFETY: the piece of the source, which is valid and apart from the target by the
            // contract of `start`; or a slot whose flag was seen, by this function's contract; or
            // this rank's own slot, which it has filled where source and target are one.
            unsafe {
                if rank == own && !self.is_in_place() {
                    slice::from_raw_parts(self.operation.source.add(self.offset), len_bytes)
                } else {
                    rings.slot(self.ring, rank, step, len_bytes)
                }
            }
        };
        // SAFETY: the piece lies within the target, valid by the contract of `start` and apart from
        // the segment.
        let target =
            unsafe { slice::from_raw_parts_mut(self.operation.target.add(self.offset), len_bytes) };
        reduce_prefix(self.kernel, target, contributions, piece);
    }

    fn next(&mut self) -> bool {
        self.offset += self.len_bytes();
        self.offset < self.operation.len_bytes
    }
}

/// Reduces the pieces of the first `ranks` ranks, at least one, into `target`.
pub(super) fn reduce_prefix<'a>(
    kernel: &dyn Combine,
    target: &mut [u8],
    ranks: u32,
    piece: impl Fn(u32) -> &'a [u8],
) {
    if ranks > 1 {
        reduce_in_order(kernel, target, ranks, |rank, part| &piece(rank)[part]);
    } else if let Some(at_once) = kernel.at_once() {
        at_once.reduce(target, ranks, &piece);
    } else {
        target.copy_from_slice(piece(0));
    }
}

/// Pieces of a chain: long enough that handing one on costs little, short enough that several are
/// under way.
const CHAIN_PIECE_BYTES_MAX: usize = 32 * 1024;
/// Shortest pieces of a chain.
const CHAIN_PIECE_BYTES_MIN: usize = 8 * 1024;
/// In how many pieces a vector between those bounds goes.
const CHAIN_PIECES: usize = 8;
/// What the last rank of a chain puts aside at a time when it works in place.
const ASIDE_BYTES: usize = 4096;

/// A scan in which every rank reads the one before it, and is read by the one behind it.
pub(super) struct Chain {
    operation: Operation,
    kernel: &'static dyn Combine,
    inclusive: bool,
    /// Its first step on the ring.
    since: u64,
    /// Bytes of a piece, whole elements.
    piece_bytes: usize,
    /// Where the current piece begins.
    offset: usize,
}

impl Chain {
    /// Whether `operation` goes along a chain among `ranks` ranks.
    pub(super) fn suits(operation: &Operation, kernel: &dyn Combine, ranks: u32) -> bool {
        let is_long = operation.len_bytes > RINGS[SHORT_RING].capacity_bytes;
        is_long && ranks > 2 && kernel.has_partial_results()
    }

    pub(super) fn new(
        operation: Operation,
        kernel: &'static dyn Combine,
        inclusive: bool,
        rings: &Rings,
    ) -> Self {
        let piece_bytes = operation
            .len_bytes
            .div_ceil(CHAIN_PIECES)
            .clamp(CHAIN_PIECE_BYTES_MIN, CHAIN_PIECE_BYTES_MAX);
        let piece_bytes = piece_bytes - piece_bytes % kernel.element_bytes();
        let since = rings.step(LONG_RING);
        Self { operation, kernel, inclusive, since, piece_bytes, offset: 0 }
    }

    /// Drives the operation until it is done or something must be awaited.
    pub(super) fn advance(&mut self, rings: &mut Rings) -> Result<(), Awaited> {
        let (own, last) = (rings.local_rank, rings.ranks - 1);
        while self.offset < self.operation.len_bytes {
            if own < last {
                rings.claim_for(LONG_RING, own + 1, self.since)?;
            }
            if own > 0 && !rings.is_filled(LONG_RING, own - 1) {
                let (peer, ring, step) = (own - 1, LONG_RING, rings.step(LONG_RING));
                return Err(Awaited { peer, ring, step, event: AwaitedEvent::Filled });
            }
            // SAFETY: the slot of the rank before was seen to be filled, if there is one; this
            // rank's own is claimed, if it has a reader.
            unsafe {
                match own {
                    0 => self.begin(rings),
                    _ if own == last => self.end(rings),
                    _ => self.hand_on(rings),
                }
            }
            if own < last {
                rings.publish(LONG_RING, self.len_bytes());
            }
            rings.finish(LONG_RING, true);
            self.offset += self.len_bytes();
        }
        Ok(())
    }

    fn len_bytes(&self) -> usize {
        self.piece_bytes.min(self.operation.len_bytes - self.offset)
    }

    fn is_in_place(&self) -> bool {
        self.operation.source == self.operation.target.cast_const()
    }

    /// The current piece of this rank's contribution.
    ///
    /// # Safety
    /// Nothing writes to it as long as the slice is used.
    unsafe fn source(&self) -> &[u8] {
        // SAFETY: it lies within the source, valid until the operation is over by the contract of
        // `start`, and not written meanwhile, by this function's contract.
        unsafe { slice::from_raw_parts(self.operation.source.add(self.offset), self.len_bytes()) }
    }

    /// Where the current piece of the result goes.
    fn target(&self) -> *mut u8 {
        // SAFETY: it lies within the target, valid by the contract of `start`.
        unsafe { self.operation.target.add(self.offset) }
    }

    /// The reduction so far, published by the rank before this one.
    ///
    /// # Safety
    /// There is a rank before this one, and the flag of its slot was seen.
    unsafe fn so_far<'a>(&self, rings: &'a Rings) -> &'a [u8] {
        let step = rings.step(LONG_RING);
        // SAFETY: its flag was seen, by this function's contract.
        unsafe { rings.slot(LONG_RING, rings.local_rank - 1, step, self.len_bytes()) }
    }

    /// The first rank: its contribution is the reduction so far, and its own inclusive result.
    ///
    /// # Safety
    /// The own slot is claimed and not published.
    unsafe fn begin(&self, rings: &mut Rings) {
        // SAFETY: the slot is claimed, by this function's contract; the buffers are valid, and one
        // or apart, by the contract of `start`.
        unsafe {
            let source = self.source();
            rings.own_slot(LONG_RING, source.len()).copy_from_slice(source);
            if self.inclusive && !self.is_in_place() {
                copy(source.as_ptr(), self.target(), source.len());
            }
        }
    }

    /// A rank between others. The slot is filled before the target, which may be the source.
    ///
    /// # Safety
    /// The own slot is claimed and not published, and the flag of the rank before was seen.
    unsafe fn hand_on(&self, rings: &Rings) {
        let len_bytes = self.len_bytes();
        let step = rings.step(LONG_RING);
        let own_slot = rings.segment.payload_to_fill(LONG_RING, rings.local_rank, step);
        // SAFETY: the slot is claimed, by this function's contract, and this is the only slice of
        // it; the one before was seen to be filled, by the same; the buffers are valid by the
        // contract of `start`, and the source is read before the target is written.
        unsafe {
            let so_far = self.so_far(rings);
            let next = slice::from_raw_parts_mut(own_slot, len_bytes);
            self.kernel.combine_into(next, so_far, self.source());
            let result = if self.inclusive { &*next } else { so_far };
            copy(result.as_ptr(), self.target(), len_bytes);
        }
    }

    /// The last rank, which publishes nothing.
    ///
    /// # Safety
    /// The flag of the rank before was seen.
    unsafe fn end(&self, rings: &Rings) {
        let len_bytes = self.len_bytes();
        // SAFETY: the flag of the rank before was seen, by this function's contract.
        let so_far = unsafe { self.so_far(rings) };
        if !self.inclusive {
            // SAFETY: the target is valid for the piece by the contract of `start`, and apart from
            // the segment.
            return unsafe { copy(so_far.as_ptr(), self.target(), len_bytes) };
        }
        if !self.is_in_place() {
            // SAFETY: the buffers are valid, and apart where they are not one, by the contract of
            // `start`.
            let (target, source) =
                unsafe { (slice::from_raw_parts_mut(self.target(), len_bytes), self.source()) };
            return self.kernel.combine_into(target, so_far, source);
        }
        // SAFETY: valid by the contract of `start`; source and target are one here, and this is the
        // only slice of it.
        let vector = unsafe { slice::from_raw_parts_mut(self.target(), len_bytes) };
        combine_in_place(self.kernel, so_far, vector);
    }
}

/// `vector = left OP vector`, block by block through a copy.
fn combine_in_place(kernel: &dyn Combine, left: &[u8], vector: &mut [u8]) {
    let block_bytes = ASIDE_BYTES - ASIDE_BYTES % kernel.element_bytes();
    let mut aside = [MaybeUninit::<u8>::uninit(); ASIDE_BYTES];
    for (left, block) in left.chunks(block_bytes).zip(vector.chunks_mut(block_bytes)) {
        let copied = aside.as_mut_ptr().cast::<u8>();
        // SAFETY: a block is not longer than `aside`, which is apart from it.
        let right = unsafe {
            copy(block.as_ptr(), copied, block.len());
            slice::from_raw_parts(copied.cast_const(), block.len())
        };
        kernel.combine_into(block, left, right);
    }
}
