//! A communicator: where its ranks are, and the way its operations go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::bootstrap::Bootstrap;
use crate::context::Context;
use crate::engine::Engine;
use crate::operation::{CollectiveError, Operation};
use crate::report::{Tally, Way};
use crate::request::{Request, RequestState, enlist};
use crate::waiting::{Policy, Waiter};

pub(crate) mod join;
mod setup;

pub use setup::Unavailable;

/// A communicator at one rank.
///
/// All ranks run the same operations in the same order; blocking and nonblocking ones queue up
/// together. Safe to use from several threads, as far as that rule allows.
pub struct Communicator {
    shared: Arc<Shared>,
    context: Arc<Context>,
}

/// What requests keep alive.
pub(crate) struct Shared {
    engine: Mutex<Engine>,
    policy: Policy,
    way: Way,
    tally: Arc<Tally>,
}

impl Communicator {
    /// Sets a communicator up; its operations are counted in `tally`. Collective over its ranks, and
    /// the outcome is the same on all.
    ///
    /// # Errors
    /// If it can't be carried by us: why, in one line.
    pub fn create(
        context: &Arc<Context>,
        bootstrap: &mut dyn Bootstrap,
        tally: &Arc<Tally>,
    ) -> Result<Self, Unavailable> {
        let engine = setup::set_up(context, bootstrap, tally.label())?;
        let way = engine.seat.way();
        tally.set_hosts(engine.seat.placement.hosts.len() as u32);
        if let Some(note) = &engine.seat.note {
            tally.set_note(note);
        }
        let tally = Arc::clone(tally);
        let policy = engine.policy;
        let shared = Shared { engine: Mutex::new(engine), policy, way, tally };
        Ok(Self { shared: Arc::new(shared), context: Arc::clone(context) })
    }

    /// Runs an operation to its end and counts it.
    ///
    /// # Errors
    /// If a rank or the tree was lost (the communicator is then of no further use), or the
    /// operation is none.
    ///
    /// # Safety
    /// `source` and `target` are valid for the operation's length where this rank's part in it uses
    /// them, equal or not overlapping, and nobody else uses them until this returns.
    #[inline]
    pub unsafe fn run(&self, operation: &Operation) -> Result<(), CollectiveError> {
        self.shared.tally.count(operation.kind(), self.shared.way);
        // SAFETY: the caller's promise.
        unsafe { self.shared.lock().run(operation) }
    }

    /// Starts an operation and counts it.
    ///
    /// # Errors
    /// As [`Communicator::run`], as far as it is known by now; the rest comes with the request.
    ///
    /// # Safety
    /// As [`Communicator::run`], until the request says that the operation is over, and from any
    /// thread of the process.
    pub unsafe fn start(&self, operation: Operation) -> Result<Request, CollectiveError> {
        self.shared.tally.count(operation.kind(), self.shared.way);
        let state = Arc::new(RequestState::default());
        let mut engine = self.shared.lock();
        engine.start(operation, Arc::clone(&state))?;
        let is_idle = engine.is_idle();
        drop(engine);
        if !is_idle {
            enlist(&self.shared);
        }
        Ok(Request::new(state, Arc::clone(&self.shared)))
    }

    /// The way its operations go.
    #[must_use]
    pub fn way(&self) -> Way {
        self.shared.way
    }
}

impl Drop for Communicator {
    /// Leaves. Not collective: other ranks may still be finishing their last operation.
    fn drop(&mut self) {
        self.shared.lock().leave();
        self.context.release();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::new(self.policy)
    }

    /// Goes on with what was started, unless another thread is at it.
    pub(crate) fn try_progress(&self) {
        match self.engine.try_lock() {
            Ok(mut engine) => {
                engine.progress();
            }
            Err(TryLockError::Poisoned(poisoned)) => {
                poisoned.into_inner().progress();
            }
            Err(TryLockError::WouldBlock) => {}
        }
    }

    pub(crate) fn progress_or_pause(&self, waiter: &mut Waiter) {
        let mut engine = self.lock();
        if engine.progress() {
            waiter.reset();
        } else {
            engine.pause(waiter);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        match self.engine.try_lock() {
            Ok(engine) => engine.is_idle(),
            Err(_) => false,
        }
    }
}
