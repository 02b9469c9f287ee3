//! What the protocols of the segment are made of: atomic words, fences, and sleeping on a word.
//!
//! Owns the choice of these, and nothing of what they are used for. They are apart so that the very
//! files that ship run under the model checker on its own words (`model`), and so that tests can
//! end a process before any store to shared memory (`death`).

use std::time::Duration;

#[cfg(not(test))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64};
pub(super) use std::sync::atomic::{Ordering, fence};

use rustix::thread::futex;
use rustix::time::Timespec;

#[cfg(test)]
pub(super) use super::tests::death::{AtomicU32, AtomicU64};

/// Sleeps until [`wake_all`] on `word`, unless it is not `value`; for `time` at most. May wake
/// early.
pub(super) fn sleep_on(word: &AtomicU32, value: u32, time: Duration) {
    let timeout =
        Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // Woken, out of time, interrupted, or the word had changed already: the caller polls again in
    // every case.
    let _ = futex::wait(word, futex::Flags::empty(), value, Some(&timeout));
}

/// Wakes everyone who sleeps on `word`.
pub(super) fn wake_all(word: &AtomicU32) {
    // Fails only for a bad address or an unmapped page; neither can be here.
    let woken = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    debug_assert!(woken.is_ok());
}

/// Lets `time` pass.
pub(super) fn nap(time: Duration) {
    std::thread::sleep(time);
}

/// A step that others may see the effect of and that is no store to shared memory: a process may be
/// ended before it, in tests.
#[inline]
pub(super) fn step() {
    #[cfg(test)]
    super::tests::death::step();
}
