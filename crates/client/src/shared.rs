//! A communicator's engine, as its handle and its requests share it.

use std::time::Duration;

use tributary_shm_collectives::{Policy, Waiter};

use crate::engine::Engine;
use crate::exclusive::Exclusive;

/// What requests keep alive.
pub(crate) struct Shared {
    pub(crate) engine: Exclusive<Engine>,
    pub(crate) policy: Policy,
}

impl Shared {
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::new(self.policy)
    }

    /// A waiter whose sleeps last `nap_max` at most.
    pub(crate) fn napping_waiter(&self, nap_max: Duration) -> Waiter {
        Waiter::with_naps(self.policy, nap_max)
    }

    /// Goes on with what was started, unless another thread is at it.
    pub(crate) fn try_progress(&self) {
        if let Some(mut engine) = self.engine.try_lock() {
            engine.progress();
        }
    }

    pub(crate) fn progress_or_pause(&self, waiter: &mut Waiter) {
        self.engine.lock().progress_or_pause(waiter);
    }

    /// Lets a little time pass, for a caller that must not wait for another thread's operation.
    pub(crate) fn try_rest(&self, waiter: &mut Waiter) {
        match self.engine.try_lock() {
            Some(mut engine) if self.policy == Policy::Spin => engine.progress_or_pause(waiter),
            Some(mut engine) => engine.pause(waiter),
            None => std::thread::yield_now(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.engine.try_lock().is_some_and(|engine| engine.is_idle())
    }
}
