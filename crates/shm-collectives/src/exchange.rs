//! The exchange of two ranks: each reduces the peer's slot with its own contribution.
//!
//! The rule that a slot belongs to a rank in every other step is in the documentation of [`super`].

use std::mem::MaybeUninit;
use std::{ptr, slice};

use super::combine::Combine;
use super::copy::copy;
use super::ring::Rings;
use super::segment::{EXCHANGE_RING, RINGS};

/// Reduces the peer's box of the step to come and this rank's `source` into `target`.
///
/// The own box is not read: the peer may be filling it for the next step already.
///
/// # Safety
/// The group has two ranks, the peer's flag was seen, and the vector is not longer than a box.
#[inline]
pub(super) unsafe fn consume_exchanged(
    rings: &Rings,
    kernel: &(impl Combine + ?Sized),
    source: *const u8,
    target: *mut u8,
    len_bytes: usize,
) {
    if ptr::eq(source, target) {
        // SAFETY: the caller's promise.
        return unsafe { consume_exchanged_in_place(rings, kernel, target, len_bytes) };
    }
    // SAFETY: the caller's contribution, apart from the target.
    let mine = unsafe { slice::from_raw_parts(source, len_bytes) };
    // SAFETY: the caller's promise.
    unsafe { combine_exchanged(rings, kernel, mine, target) };
}

/// The same where this rank's contribution is what the result overwrites. On its own, because the
/// copy needs more of the stack than a call should touch.
#[inline(never)]
unsafe fn consume_exchanged_in_place(
    rings: &Rings,
    kernel: &(impl Combine + ?Sized),
    target: *mut u8,
    len_bytes: usize,
) {
    let mut aside = [MaybeUninit::<u8>::uninit(); RINGS[EXCHANGE_RING].capacity_bytes];
    // SAFETY: a box is not longer than `aside`, which is apart from the caller's buffer.
    let mine = unsafe {
        copy(target, aside.as_mut_ptr().cast(), len_bytes);
        slice::from_raw_parts(aside.as_ptr().cast(), len_bytes)
    };
    // SAFETY: the caller's promise.
    unsafe { combine_exchanged(rings, kernel, mine, target) };
}

/// Reduces `mine` and the peer's box into `target`.
#[inline]
unsafe fn combine_exchanged(
    rings: &Rings,
    kernel: &(impl Combine + ?Sized),
    mine: &[u8],
    target: *mut u8,
) {
    let own = rings.local_rank;
    // SAFETY: the peer's flag was seen, and it writes this box again only after this rank's next
    // step; `target` is the caller's and apart from the segment.
    let (theirs, result) = unsafe {
        (
            rings.slot(EXCHANGE_RING, 1 - own, rings.step(EXCHANGE_RING), mine.len()),
            slice::from_raw_parts_mut(target, mine.len()),
        )
    };
    let (left, right) = if own == 0 { (mine, theirs) } else { (theirs, mine) };
    kernel.combine_into(result, left, right);
}
