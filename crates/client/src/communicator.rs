//! A communicator: where its ranks are, and the way its operations go.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::bootstrap::Bootstrap;
use crate::context::Context;
use crate::engine::Engine;
use crate::express::Express;
use crate::on_host::Longest;
use crate::operation::{CollectiveError, Operation};
use crate::report::{Kind, Tally, Way};
use crate::request::{Request, RequestState, enlist};
use crate::ways::Ways;
use tributary_shm_collectives::waiting::{Policy, Waiter};

pub(crate) mod join;
mod memory;
mod rails;
mod setup;
mod sockets;

pub use setup::Unavailable;

/// A communicator at one rank.
///
/// All ranks run the same operations in the same order; blocking and nonblocking ones queue up
/// together. Safe to use from several threads, as far as that rule allows.
pub struct Communicator {
    shared: Arc<Shared>,
    context: Arc<Context>,
}

/// What a waiting rank does besides: an MPI beneath needs it to move its own messages on.
///
/// Called now and then while a blocking operation waits long, from the waiting thread.
pub type WhileWaiting = Arc<dyn Fn() -> Verdict + Send + Sync>;

/// What [`WhileWaiting`] says of the communicator that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The wait goes on.
    GoOn,
    /// The program has given the communicator up, here or at another rank; see
    /// [`Communicator::give_up`].
    GiveUp,
}

/// What requests keep alive.
pub(crate) struct Shared {
    /// Reached through `lock` and `try_lock` alone.
    engine: UnsafeCell<Engine>,
    turn: Mutex<()>,
    /// Whether more than one thread may want the engine at a time. Never becomes false again.
    is_contended: AtomicBool,
    policy: Policy,
    ways: Ways,
    longest: Longest,
    tally: Arc<Tally>,
}

// SAFETY: the engine is `Send`. Only one thread uses it at a time: `turn` sees to it, or, as long
// as `is_contended` is false, the promise given to `Context::callers_take_turns`.
unsafe impl Sync for Shared {}

/// The engine, for one thread for a while.
pub(crate) struct Access<'a> {
    engine: &'a mut Engine,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl Deref for Access<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl DerefMut for Access<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        self.engine
    }
}

impl Communicator {
    /// Sets a communicator up; its operations are counted in `tally`. Collective over its ranks, and
    /// the outcome is the same on all. `while_waiting` is called while this rank waits.
    ///
    /// # Errors
    /// If it can't be carried by us: why, in one line.
    pub fn create(
        context: &Arc<Context>,
        bootstrap: &mut dyn Bootstrap,
        tally: &Arc<Tally>,
        while_waiting: WhileWaiting,
    ) -> Result<Self, Unavailable> {
        let mut engine = setup::set_up(context, bootstrap, tally.label())?;
        engine.set_while_waiting(while_waiting);
        let (ways, longest) = (engine.seat.ways.clone(), engine.seat.longest);
        tally.set_hosts(engine.seat.placement.hosts.len() as u32);
        if let Some(note) = &engine.seat.note {
            tally.set_note(note);
        }
        if let Some(carriers) = &engine.seat.carriers {
            tally.set_carriers(carriers);
        }
        if engine.seat.stripes.asked > 1 {
            tally.set_stripes(&engine.seat.stripes);
        }
        tally.set_memory(&engine.seat.memory_notes.join("; "));
        let tally = Arc::clone(tally);
        engine.report_to(Arc::clone(&tally));
        let policy = engine.policy;
        let shared = Shared {
            engine: UnsafeCell::new(engine),
            turn: Mutex::new(()),
            is_contended: AtomicBool::new(!context.callers_take_turns),
            policy,
            ways,
            longest,
            tally,
        };
        Ok(Self { shared: Arc::new(shared), context: Arc::clone(context) })
    }

    /// Runs an operation to its end and counts it.
    ///
    /// # Errors
    /// If a rank or the tree was lost (the communicator is then of no further use), or the
    /// operation is none.
    ///
    /// # Safety
    /// `source` and `target` are valid for the lengths that the collective asks for where this rank's
    /// part in it uses them, in place as it says or not overlapping, and nobody else uses them until
    /// this returns; so are the blocks of a reduce-scatter.
    #[inline]
    pub unsafe fn run(&self, operation: &Operation) -> Result<(), CollectiveError> {
        let mut engine = self.shared.lock();
        self.shared.tally.count_in_turn(operation.kind(), self.shared.ways.way(operation));
        // SAFETY: the caller's promise.
        unsafe { engine.run(operation) }
    }

    /// The short way, for as long as this thread holds it.
    #[inline]
    #[must_use]
    pub fn express(&self) -> Express<'_> {
        Express::new(self.shared.lock(), &self.shared.tally)
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
        let state = Arc::new(RequestState::default());
        // From here on a thread of ours may look in at any time. Relaxed: only callers that take
        // turns read it before that thread knows of this communicator.
        self.shared.is_contended.store(true, Ordering::Relaxed);
        let mut engine = self.shared.lock();
        self.shared.tally.count_in_turn(operation.kind(), self.shared.ways.way(&operation));
        engine.start(operation, Arc::clone(&state))?;
        // What aggregation nodes finish alone needs no thread of this process meanwhile.
        let needs_driving = !engine.is_idle() && !engine.goes_on_alone();
        drop(engine);
        if needs_driving {
            enlist(&self.shared);
        }
        Ok(Request::new(state, Arc::clone(&self.shared)))
    }

    /// Gives the communicator up at all its ranks, as the program wants it: whatever waits on it
    /// ends with [`CollectiveError::GivenUp`], and so does every later operation. Not collective. A
    /// thread of this process that waits on it has to be told by [`WhileWaiting`] first.
    pub fn give_up(&self) {
        self.shared.lock().give_up();
    }

    /// The longest contribution, in bytes, with which a collective of this kind runs faster here than
    /// in the MPI beneath, as rank 0's settings say; none if any length may be asked for. The same at
    /// all ranks. Zero for collectives of one host on a communicator that spans several.
    #[must_use]
    pub fn longest_bytes(&self, kind: Kind) -> Option<u64> {
        self.shared.longest.of(kind)
    }

    /// Whether all its ranks are on one host.
    #[must_use]
    pub fn is_on_one_host(&self) -> bool {
        self.shared.ways.usual.is_none()
    }

    /// The way that such an operation goes.
    #[must_use]
    pub fn way(&self, operation: &Operation) -> Way {
        self.shared.ways.way(operation)
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
    #[inline]
    fn lock(&self) -> Access<'_> {
        // Relaxed: whoever shares the communicator with a thread of ours has stored it itself, or
        // was ordered behind the one that did by taking turns.
        let turn = self
            .is_contended
            .load(Ordering::Relaxed)
            .then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: this thread has the turn, or no other one can want it.
        Access { engine: unsafe { &mut *self.engine.get() }, _turn: turn }
    }

    /// The engine, unless another thread has it. For communicators that are contended.
    fn try_lock(&self) -> Option<Access<'_>> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // SAFETY: this thread has the turn; that others want it too is known to all of them, for
        // only communicators with requests get here.
        Some(Access { engine: unsafe { &mut *self.engine.get() }, _turn: Some(turn) })
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::new(self.policy)
    }

    /// Goes on with what was started, unless another thread is at it.
    pub(crate) fn try_progress(&self) {
        if let Some(mut engine) = self.try_lock() {
            engine.progress();
        }
    }

    pub(crate) fn progress_or_pause(&self, waiter: &mut Waiter) {
        self.lock().progress_or_pause(waiter);
    }

    /// Lets a little time pass, for a caller that must not wait for another thread's turn.
    pub(crate) fn try_rest(&self, waiter: &mut Waiter) {
        match self.try_lock() {
            Some(mut engine) if self.policy == Policy::Spin => engine.progress_or_pause(waiter),
            Some(mut engine) => engine.pause(waiter),
            None => std::thread::yield_now(),
        }
    }

    /// A waiter whose sleeps last `nap_max` at most.
    pub(crate) fn napping_waiter(&self, nap_max: Duration) -> Waiter {
        Waiter::with_naps(self.policy, nap_max)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.try_lock().is_some_and(|engine| engine.is_idle())
    }
}
