//! Processes that end before a chosen step: the words of the segment as tests build them.
//!
//! What a process has stored to shared memory is all that others can know of its end, so "killed at
//! every step" is killed before every such store, and before every call that reads or writes
//! another process's memory. The words count these, and the one that was chosen is the process's
//! last.

use std::ops::Deref;
use std::sync::atomic::{self, Ordering};

/// Steps until this process is killed; zero or less: never.
static STEPS_LEFT: atomic::AtomicI64 = atomic::AtomicI64::new(0);

/// Has this process killed, as by `kill -9`, before the `nth` step from now; 0: not any more.
pub(super) fn die_before_step(nth: i64) {
    STEPS_LEFT.store(nth, Ordering::Relaxed);
}

/// A step of the process.
pub(crate) fn step() {
    // Only the victim's one thread counts.
    if STEPS_LEFT.load(Ordering::Relaxed) > 0 && STEPS_LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        // SAFETY: a system call without memory.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        unreachable!("SIGKILL cannot be ignored");
    }
}

macro_rules! mortal_word {
    ($name:ident, $value:ty) => {
        /// The word of that name, whose stores are steps.
        #[repr(transparent)]
        pub(crate) struct $name(atomic::$name);

        impl $name {
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(current, new, success, failure)
            }
        }

        /// For loads, and for the kernel. How often a rank polls is left to chance, so it is no
        /// step.
        impl Deref for $name {
            type Target = atomic::$name;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}

mortal_word!(AtomicU32, u32);
mortal_word!(AtomicU64, u64);

impl AtomicU32 {
    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        step();
        self.0.fetch_add(value, order)
    }

    pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        step();
        self.0.fetch_sub(value, order)
    }
}
