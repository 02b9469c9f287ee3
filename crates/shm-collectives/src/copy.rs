//! Copies between the caller's buffers and slots.

use std::ptr;

/// Copies a contribution into a slot; the commonest lengths without a call.
///
/// # Safety
/// `source` is valid for reading as many bytes as `slot` has, and does not overlap it.
#[inline]
pub(super) unsafe fn copy_short(source: *const u8, slot: &mut [u8]) {
    let target = slot.as_mut_ptr();
    // SAFETY: `source` is valid for the slot's length and does not overlap it, by this function's
    // contract; fixed lengths are those of the slot.
    unsafe {
        match slot.len() {
            8 => ptr::copy_nonoverlapping(source, target, 8),
            4 => ptr::copy_nonoverlapping(source, target, 4),
            len_bytes => ptr::copy_nonoverlapping(source, target, len_bytes),
        }
    }
}

/// Copies `len_bytes`.
///
/// # Safety
/// `source` is valid for reading `len_bytes`, `target` for writing them, and they do not overlap.
#[inline]
pub(super) unsafe fn copy(source: *const u8, target: *mut u8, len_bytes: usize) {
    // SAFETY: valid and not overlapping, by this function's contract.
    unsafe { ptr::copy_nonoverlapping(source, target, len_bytes) }
}
