//! A value that one caller uses at a time, without a lock as long as callers promise to come one by
//! one.
//!
//! MPI below `MPI_THREAD_MULTIPLE` promises that; an allreduce of a few bytes takes some 300
//! instructions, of which a lock would be a tenth. The promise covers threads. Calls that come out of
//! one another are found by a flag, so no two guards ever live at once.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The value, and who may use it.
pub(crate) struct Exclusive<T> {
    /// Reached through [`Guard`], and by [`with`](Self::with).
    value: UnsafeCell<T>,
    mutex: Mutex<()>,
    /// Whether threads may come at the same time. Never becomes false again.
    is_shared: AtomicBool,
    /// Whether there is a guard. Used by the thread alone that holds the mutex, or, while the value is
    /// not shared, by callers that come one by one.
    has_guard: Cell<bool>,
}

// SAFETY: the value is `Send`. `lock` and `try_lock` let one thread at a time to it and to the flag: by
// the mutex, or, as long as `is_shared` is false, by the promise given to `unshared`.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// A value that threads may want at the same time.
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: UnsafeCell::new(value),
            mutex: Mutex::new(()),
            is_shared: AtomicBool::new(true),
            has_guard: Cell::new(false),
        }
    }

    /// A value whose callers come one by one, and take no lock.
    ///
    /// # Safety
    /// Until somebody calls [`share`](Self::share), every use of a guard happens before the next call of
    /// a function that locks it, whichever threads they are on, and nobody calls
    /// [`try_lock`](Self::try_lock).
    pub(crate) unsafe fn new_unshared(value: T) -> Self {
        Self { is_shared: AtomicBool::new(false), ..Self::new(value) }
    }

    /// From now on threads may come at the same time.
    pub(crate) fn share(&self) {
        // Relaxed: until then callers come one by one, so each sees what was stored before it came.
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Waits for the value.
    ///
    /// # Panics
    /// If this thread has a guard already: the caller is called by what it calls itself. Once threads
    /// share the value, such a call may wait for itself for ever instead, as `Mutex::lock` may.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let mutex = self.is_shared().then(|| self.take_mutex());
        self.guard(mutex)
    }

    #[inline]
    fn is_shared(&self) -> bool {
        // Relaxed: as in `share`.
        self.is_shared.load(Ordering::Relaxed)
    }

    fn take_mutex(&self) -> MutexGuard<'_, ()> {
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, unless another thread has it. While the value is not shared, none has.
    pub(crate) fn lock_if_free(&self) -> Option<Guard<'_, T>> {
        if self.is_shared() {
            return self.try_lock();
        }
        Some(self.guard(None))
    }

    /// Waits for the value, as [`lock`](Self::lock) does, and lets `work` use it. Without a guard to keep
    /// in memory, which a short `work` would notice.
    ///
    /// # Panics
    /// As [`lock`](Self::lock). After a panic of `work`, all calls panic.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        if self.is_shared() { self.with_mutex(work) } else { self.use_alone(work) }
    }

    /// The same, unless threads may come at the same time.
    #[inline]
    pub(crate) fn with_unshared<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        (!self.is_shared()).then(|| self.use_alone(work))
    }

    /// Apart from [`with`](Self::with), which would keep in mind whether it has the mutex.
    #[inline(never)]
    fn with_mutex<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _held = self.take_mutex();
        self.use_alone(work)
    }

    /// The caller holds the mutex, or the value is not shared.
    #[inline]
    fn use_alone<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        if self.has_guard.replace(true) {
            called_by_itself();
        }
        // SAFETY: no guard lives, as `has_guard` says, and none is made until it is reset; if `work`
        // panics, never.
        let result = work(unsafe { &mut *self.value.get() });
        self.has_guard.set(false);
        result
    }

    /// The value, unless another thread has it. For values that are shared.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        match self.mutex.try_lock() {
            Ok(held) => Some(self.guard(Some(held))),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.guard(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn guard<'a>(&'a self, mutex: Option<MutexGuard<'a, ()>>) -> Guard<'a, T> {
        if self.has_guard.replace(true) {
            called_by_itself();
        }
        Guard { owner: self, _mutex: mutex }
    }
}

#[cold]
fn called_by_itself() -> ! {
    panic!("a communicator was used from within one of its own operations, such as by a callback")
}

/// The value, for one caller for a while.
pub(crate) struct Guard<'a, T> {
    owner: &'a Exclusive<T>,
    _mutex: Option<MutexGuard<'a, ()>>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard, as `has_guard` says, and nothing else leads to the value.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.owner.has_guard.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;

    fn new_unshared(value: u32) -> Exclusive<u32> {
        // SAFETY: every test uses its value on one thread.
        unsafe { Exclusive::new_unshared(value) }
    }

    #[test]
    fn callers_that_come_one_by_one_see_what_the_last_one_left() {
        let value = new_unshared(1);
        *value.lock() += 1;
        *value.lock() += 1;
        assert_eq!(*value.lock(), 3);
    }

    /// Fails under Miri, and anywhere, if two guards of one value can live at once.
    #[test]
    fn there_is_no_second_guard_beside_the_first() {
        let value = new_unshared(1);
        let mut first = value.lock();
        *first = 2;
        let second = catch_unwind(AssertUnwindSafe(|| *value.lock()));
        assert!(second.is_err(), "a second guard was handed out");
        *first += 1;
        drop(first);
        assert_eq!(value.with(|value| *value), 3);
        let nested = catch_unwind(AssertUnwindSafe(|| value.with(|_| *value.lock())));
        assert!(nested.is_err(), "a guard was handed out beside a use");
    }

    #[test]
    fn shared_values_are_locked() {
        let value = Arc::new(new_unshared(0));
        value.share();
        assert_eq!(value.with_unshared(|value| *value), None);
        let threads = (0..4).map(|_| {
            let value = Arc::clone(&value);
            std::thread::spawn(move || {
                (0..100).for_each(|_| *value.lock() += 1);
                (0..100).for_each(|_| value.with(|value| *value += 1));
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        let held = value.lock();
        assert_eq!(*held, 800);
        assert!(value.try_lock().is_none());
    }
}
