//! A wrong carry that can be planted on purpose, to test that the oracle finds it.
//!
//! Only with the feature `planted-bugs`, for the whole process.

use core::sync::atomic::{AtomicBool, Ordering};

static LOSES_CARRY: AtomicBool = AtomicBool::new(false);

/// Plants the bug, or removes it: a merge loses the carry out of a word that comes out below 2^60, and one that reads lanes those out of
/// all digits.
pub fn plant(is_planted: bool) {
    // Relaxed: nothing else is published with it.
    LOSES_CARRY.store(is_planted, Ordering::Relaxed);
}

pub(crate) fn loses_carry_of_digit() -> bool {
    LOSES_CARRY.load(Ordering::Relaxed)
}

pub(crate) fn loses_carry(sum: u64) -> bool {
    sum >> 60 == 0 && LOSES_CARRY.load(Ordering::Relaxed)
}
