//! The loops over 16-bit floats: widened to binary32, combined, rounded back.

use core::marker::PhantomData;

use crate::body::{One, Three, Two};
use crate::lanes::{Half, Lanes};
use crate::operation::LanesOperation;

/// Size of a 16-bit float.
const HALF_BYTES: usize = 2;

/// Size of a binary32 value.
const SINGLE_BYTES: usize = 4;

/// Values in the largest [`Lanes`].
const LANES_MAX: usize = 64;

/// Runs the block with `(first, count)` for runs of `V::COUNT` elements and then for the rest.
///
/// `count` is a compile-time constant in the full runs, so the compiler removes the partial path there.
/// It is a macro because a closure would be compiled without the instruction set of the function
/// around it.
macro_rules! for_each_block {
    ($lanes:ty, $elements:ident, |$first:ident, $count:ident| $block:block) => {{
        let full = $elements - $elements % <$lanes>::COUNT;
        let mut $first = 0;
        while $first < full {
            let $count = <$lanes>::COUNT;
            $block
            $first += $count;
        }
        if full < $elements {
            let $count = $elements - full;
            $block
        }
    }};
}

/// `target = target OP source` on 16-bit floats, each element rounded.
pub(crate) struct FoldHalf<H, O, V>(PhantomData<(H, O, V)>);

impl<H: Half, O: LanesOperation, V: Lanes> Two for FoldHalf<H, O, V> {
    #[inline(always)]
    unsafe fn run(target: &mut [u8], source: &[u8]) {
        let elements = target.len().min(source.len()) / HALF_BYTES;
        let (target, source) = (target.as_mut_ptr(), source.as_ptr());
        // SAFETY: both slices hold `elements` 16-bit floats, and the two pointers are the only ones
        // in use; the processor has the instructions by the contract of `run`.
        unsafe {
            for_each_block!(V, elements, |first, count| {
                let at = target.add(first * HALF_BYTES);
                let left = load_half::<H, V>(at, count);
                let right = load_half::<H, V>(source.add(first * HALF_BYTES), count);
                store_half::<H, V>(O::combine_lanes(left, right), at, count);
            });
        }
    }
}

/// `target = left OP right` on 16-bit floats, each element rounded.
pub(crate) struct CombineHalf<H, O, V>(PhantomData<(H, O, V)>);

impl<H: Half, O: LanesOperation, V: Lanes> Three for CombineHalf<H, O, V> {
    #[inline(always)]
    unsafe fn run(target: &mut [u8], left: &[u8], right: &[u8]) {
        let elements = target.len().min(left.len()).min(right.len()) / HALF_BYTES;
        let (target, left, right) = (target.as_mut_ptr(), left.as_ptr(), right.as_ptr());
        // SAFETY: all slices hold `elements` 16-bit floats; the processor has the instructions by the
        // contract of `run`.
        unsafe {
            for_each_block!(V, elements, |first, count| {
                let left = load_half::<H, V>(left.add(first * HALF_BYTES), count);
                let right = load_half::<H, V>(right.add(first * HALF_BYTES), count);
                let at = target.add(first * HALF_BYTES);
                store_half::<H, V>(O::combine_lanes(left, right), at, count);
            });
        }
    }
}

/// `target = source`, 16-bit floats becoming binary32.
pub(crate) struct Widen<H, V>(PhantomData<(H, V)>);

impl<H: Half, V: Lanes> Two for Widen<H, V> {
    #[inline(always)]
    unsafe fn run(target: &mut [u8], source: &[u8]) {
        let elements = (target.len() / SINGLE_BYTES).min(source.len() / HALF_BYTES);
        let (target, source) = (target.as_mut_ptr(), source.as_ptr());
        // SAFETY: `target` holds `elements` binary32 values and `source` as many 16-bit floats; the
        // processor has the instructions by the contract of `run`.
        unsafe {
            for_each_block!(V, elements, |first, count| {
                let values = load_half::<H, V>(source.add(first * HALF_BYTES), count);
                store_single(values, target.add(first * SINGLE_BYTES), count);
            });
        }
    }
}

/// `target = target OP source`, where `target` is binary32 and `source` 16-bit floats.
pub(crate) struct FoldWide<H, O, V>(PhantomData<(H, O, V)>);

impl<H: Half, O: LanesOperation, V: Lanes> Two for FoldWide<H, O, V> {
    #[inline(always)]
    unsafe fn run(target: &mut [u8], source: &[u8]) {
        let elements = (target.len() / SINGLE_BYTES).min(source.len() / HALF_BYTES);
        let (target, source) = (target.as_mut_ptr(), source.as_ptr());
        // SAFETY: `target` holds `elements` binary32 values and `source` as many 16-bit floats; the
        // processor has the instructions by the contract of `run`.
        unsafe {
            for_each_block!(V, elements, |first, count| {
                let at = target.add(first * SINGLE_BYTES);
                let left = load_single::<V>(at, count);
                let right = load_half::<H, V>(source.add(first * HALF_BYTES), count);
                store_single(O::combine_lanes(left, right), at, count);
            });
        }
    }
}

/// Rounds the binary32 values of `target` into 16-bit floats in its first half.
pub(crate) struct Narrow<H, V>(PhantomData<(H, V)>);

impl<H: Half, V: Lanes> One for Narrow<H, V> {
    #[inline(always)]
    unsafe fn run(target: &mut [u8]) {
        let elements = target.len() / SINGLE_BYTES;
        let target = target.as_mut_ptr();
        // SAFETY: `target` holds `elements` binary32 values. A block is read before it is written,
        // and it is written at or before where it was read, so no later block is overwritten. The
        // processor has the instructions by the contract of `run`.
        unsafe {
            for_each_block!(V, elements, |first, count| {
                let values = load_single::<V>(target.add(first * SINGLE_BYTES), count);
                store_half::<H, V>(values, target.add(first * HALF_BYTES), count);
            });
        }
    }
}

/// Reads `count` 16-bit floats; lanes beyond them are zero.
///
/// # Safety
/// `count <= V::COUNT` values at `at` can be read; the processor has the instructions of `V`.
#[inline(always)]
unsafe fn load_half<H: Half, V: Lanes>(at: *const u8, count: usize) -> V {
    const { assert!(V::COUNT <= LANES_MAX) };
    if count == V::COUNT {
        // SAFETY: by this function's contract, all `V::COUNT` values at `at` can be read.
        return unsafe { H::load(at) };
    }
    let mut block = [0; LANES_MAX * HALF_BYTES];
    // SAFETY: by this function's contract, `count` values at `at` can be read. `block` has room for them,
    // because it holds the values of the largest lanes.
    unsafe {
        at.copy_to_nonoverlapping(block.as_mut_ptr(), count * HALF_BYTES);
        H::load(block.as_ptr())
    }
}

/// Rounds and writes the first `count` lanes.
///
/// # Safety
/// `count <= V::COUNT` values at `at` can be written; the processor has the instructions of `V`.
#[inline(always)]
unsafe fn store_half<H: Half, V: Lanes>(values: V, at: *mut u8, count: usize) {
    const { assert!(V::COUNT <= LANES_MAX) };
    if count == V::COUNT {
        // SAFETY: by this function's contract, all `V::COUNT` values at `at` can be written.
        return unsafe { H::store(values, at) };
    }
    let mut block = [0; LANES_MAX * HALF_BYTES];
    // SAFETY: `block` holds the values of the largest lanes. By this function's contract, `count` values
    // at `at` can be written.
    unsafe {
        H::store(values, block.as_mut_ptr());
        at.copy_from_nonoverlapping(block.as_ptr(), count * HALF_BYTES);
    }
}

/// Reads `count` binary32 values; lanes beyond them are zero.
///
/// # Safety
/// `count <= V::COUNT` values at `at` can be read; the processor has the instructions of `V`.
#[inline(always)]
unsafe fn load_single<V: Lanes>(at: *const u8, count: usize) -> V {
    const { assert!(V::COUNT <= LANES_MAX) };
    if count == V::COUNT {
        // SAFETY: by this function's contract, all `V::COUNT` values at `at` can be read.
        return unsafe { V::load(at) };
    }
    let mut block = [0; LANES_MAX * SINGLE_BYTES];
    // SAFETY: by this function's contract, `count` values at `at` can be read. `block` has room for them,
    // because it holds the values of the largest lanes.
    unsafe {
        at.copy_to_nonoverlapping(block.as_mut_ptr(), count * SINGLE_BYTES);
        V::load(block.as_ptr())
    }
}

/// Writes the first `count` lanes.
///
/// # Safety
/// `count <= V::COUNT` values at `at` can be written; the processor has the instructions of `V`.
#[inline(always)]
unsafe fn store_single<V: Lanes>(values: V, at: *mut u8, count: usize) {
    const { assert!(V::COUNT <= LANES_MAX) };
    if count == V::COUNT {
        // SAFETY: by this function's contract, all `V::COUNT` values at `at` can be written.
        return unsafe { values.store(at) };
    }
    let mut block = [0; LANES_MAX * SINGLE_BYTES];
    // SAFETY: `block` holds the values of the largest lanes. By this function's contract, `count` values
    // at `at` can be written.
    unsafe {
        values.store(block.as_mut_ptr());
        at.copy_from_nonoverlapping(block.as_ptr(), count * SINGLE_BYTES);
    }
}
