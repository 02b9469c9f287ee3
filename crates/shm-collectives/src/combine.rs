//! The interface of a reduction kernel, and reduction over many ranks in their order.
//!
//! Operations know neither datatypes nor operators: they give byte slices, cut at element
//! boundaries, to a [`Combine`].

use std::ops::Range;

use super::segment::{LONG_RING, RINGS};

/// Bytes of the target worked on at a time, so that it stays in the first-level cache while one
/// rank after another is folded into it. A multiple of every power of two up to the longest element.
const BLOCK_BYTES: usize = 12 * 1024;
/// Bytes of wide accumulators on the stack.
const SCRATCH_BYTES: usize = 4 * 1024;

/// Longest elements there are: several fit every block and piece that vectors are cut into.
const ELEMENT_BYTES_MAX: usize = 4096;

/// The longest elements that a group of `ranks` ranks reduces, in bytes: a slice of every rank's block
/// fits a slot of the long ring.
#[must_use]
pub fn element_bytes_max(ranks: u32) -> usize {
    ELEMENT_BYTES_MAX.min(RINGS[LONG_RING].capacity_bytes / ranks.max(1) as usize)
}

/// A reduction kernel: one operator on one datatype, for instance the sum of `f32`.
///
/// A group calls it with parts of the ranks' vectors, as bytes. All slices of one call have equal
/// lengths, a multiple of [`element_bytes`](Self::element_bytes); they do not overlap, and may have
/// any alignment. A kernel works element by element: where a vector is cut must not change any
/// element of the result.
///
/// A reduction over ranks is always `((0 OP 1) OP 2) ...`: `left` and the accumulated `target` are
/// the lower ranks. So the operator need be neither commutative nor associative.
///
/// Kernels are shared by threads, and valid as long as the operation that has them; most are a `static`
/// of a type without fields. The example of the [crate] has one.
pub trait Combine: Sync {
    /// Size of one element in bytes: 1 to [`element_bytes_max`].
    fn element_bytes(&self) -> usize;

    /// `target = left OP right`. What `target` held before is of no use.
    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]);

    /// `target = target OP source`.
    fn fold(&self, target: &mut [u8], source: &[u8]);

    /// A number from 1 to 511 that is the same at all ranks for the same operator and datatype. Ranks compare it, to find
    /// those that call different reductions. Kernels that have none share one.
    #[inline]
    fn number(&self) -> u16 {
        511
    }

    /// How to accumulate more than two ranks in a wider type, rounding once (16-bit floats).
    fn wide(&self) -> Option<&dyn Wide> {
        None
    }

    /// How to reduce the slices of all ranks in one step, where that is not the same as one after the other (exact sums).
    fn at_once(&self) -> Option<&dyn AtOnce> {
        None
    }

    /// Whether the reduction of some ranks can be handed on as an element, for others to go on with.
    fn has_partial_results(&self) -> bool {
        self.wide().is_none() && self.at_once().is_none()
    }
}

/// Reduction of the slices of all ranks in one step.
pub trait AtOnce {
    /// `target` = the reduction of the slices that `source` gives for the ranks from 0 to `ranks`, of which there is one at
    /// least.
    fn reduce<'a>(&self, target: &mut [u8], ranks: u32, source: &dyn Fn(u32) -> &'a [u8]);
}

/// Accumulation in a wider type than the elements have, for instance of 16-bit floats in 32 bits.
/// Used for three ranks and more; elements are rounded once, at the end. Accumulators are as many
/// as the elements of the other slice.
pub trait Wide {
    /// Size of one accumulator in bytes: 1 to 16.
    fn accumulator_bytes(&self) -> usize;

    /// `accumulator = source`, widened.
    fn begin(&self, accumulator: &mut [u8], source: &[u8]);

    /// `accumulator = accumulator OP source`.
    fn fold(&self, accumulator: &mut [u8], source: &[u8]);

    /// `target = accumulator`, rounded. The accumulator is of no use afterwards.
    fn finish(&self, target: &mut [u8], accumulator: &mut [u8]);
}

/// Reduces `source(rank, range)` of all `ranks` (two at least) into `target`, in rank order.
///
/// The bits of the result depend on the ranks' data only: where blocks are cut does not enter into
/// any element's value, because kernels work element by element.
pub fn reduce_in_order<'a>(
    kernel: &(impl Combine + ?Sized),
    target: &mut [u8],
    ranks: u32,
    source: impl Fn(u32, Range<usize>) -> &'a [u8],
) {
    if ranks == 2 {
        let whole = 0..target.len();
        return kernel.combine_into(target, source(0, whole.clone()), source(1, whole));
    }
    if let Some(wide) = kernel.wide() {
        return reduce_wide(wide, kernel.element_bytes(), target, ranks, source);
    }
    if let Some(at_once) = kernel.at_once() {
        let whole = 0..target.len();
        return at_once.reduce(target, ranks, &|rank| source(rank, whole.clone()));
    }
    let block_bytes = BLOCK_BYTES - BLOCK_BYTES % kernel.element_bytes();
    let mut start = 0;
    while start < target.len() {
        let end = target.len().min(start + block_bytes);
        let block = &mut target[start..end];
        kernel.combine_into(block, source(0, start..end), source(1, start..end));
        for rank in 2..ranks {
            kernel.fold(block, source(rank, start..end));
        }
        start = end;
    }
}

#[repr(align(64))]
struct Scratch([u8; SCRATCH_BYTES]);

fn reduce_wide<'a>(
    wide: &dyn Wide,
    element_bytes: usize,
    target: &mut [u8],
    ranks: u32,
    source: impl Fn(u32, Range<usize>) -> &'a [u8],
) {
    let mut scratch = Scratch([0; SCRATCH_BYTES]);
    let block_elements = SCRATCH_BYTES / wide.accumulator_bytes();
    let mut start = 0;
    while start < target.len() {
        let end = target.len().min(start + block_elements * element_bytes);
        let elements = (end - start) / element_bytes;
        let accumulator = &mut scratch.0[..elements * wide.accumulator_bytes()];
        wide.begin(accumulator, source(0, start..end));
        for rank in 1..ranks {
            wide.fold(accumulator, source(rank, start..end));
        }
        wide.finish(&mut target[start..end], accumulator);
        start = end;
    }
}
