//! An operation that is started many times.

use std::sync::Arc;

use tributary_algorithms::CollectiveKind;

use crate::engine::{Engine, PreparedExchange, PreparedNumber};
use crate::operation::{CollectiveError, Operation};
use crate::request::{Request, enlist};
use crate::request_state::RequestState;
use crate::shared::Shared;
use tributary_report::{Counters, PathKind};

/// Polls of an operation before its caller drives something else in between.
const POLLS: u32 = 256;

/// An operation that is started many times, one start after the other: what no start changes, such as
/// the path and the kernel, was found out once.
///
/// Dropping it while it is under way does not cancel the operation: its buffers stay in use until it is
/// done.
pub struct Prepared {
    number: PreparedNumber,
    request: Request,
    communicator: Arc<Shared>,
    counters: Arc<Counters>,
    kind: CollectiveKind,
    path: PathKind,
    /// What it is as an exchange of two ranks in shared memory, which takes the fewest instructions.
    exchange: Option<PreparedExchange>,
    state: Arc<RequestState>,
    /// Whether nobody else can come while a caller waits with the engine in its hands.
    callers_take_turns: bool,
}

impl Prepared {
    pub(crate) fn new(
        communicator: &Arc<Shared>,
        counters: &Arc<Counters>,
        operation: Operation,
        callers_take_turns: bool,
    ) -> Result<Self, CollectiveError> {
        let mut engine = communicator.engine.lock();
        let (carried, state) = engine.prepare_nonblocking(operation)?;
        let path = engine.path(&carried);
        let number = engine.prepare(carried, path, Arc::clone(&state))?;
        let exchange = engine.exchange(number);
        drop(engine);
        Ok(Self {
            number,
            request: Request::new(Arc::clone(&state), Arc::clone(communicator)),
            exchange,
            state,
            communicator: Arc::clone(communicator),
            counters: Arc::clone(counters),
            kind: operation.collective.kind(),
            path: path.kind(),
            callers_take_turns,
        })
    }

    /// Starts the operation once more and counts it. How it ends comes with [`poll`](Self::poll).
    ///
    /// # Safety
    /// As `Communicator::start`, for the operation that was prepared; the last start is over.
    #[inline]
    pub unsafe fn start(&self) {
        // SAFETY: as the caller of this function promises.
        if !unsafe { self.post_exchange() } {
            // SAFETY: as above.
            unsafe { self.start_any() };
        }
    }

    /// [`start`](Self::start), if the operation is an exchange and can begin at once. `false` if not.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    #[inline]
    unsafe fn post_exchange(&self) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let post = |engine: &mut Engine| {
            // SAFETY: as the caller of this function promises.
            let is_posted = unsafe { engine.post_exchange(exchange) };
            if is_posted {
                self.counters.count_in_turn(self.kind, PathKind::InHost);
                self.state.reset();
            }
            is_posted
        };
        self.communicator.engine.with_unshared(post).unwrap_or(false)
    }

    /// [`start`](Self::start) for operations of any kind.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    #[inline(never)]
    unsafe fn start_any(&self) {
        let mut engine = self.communicator.engine.lock();
        self.counters.count_in_turn(self.kind, self.path);
        // SAFETY: as the caller of this function promises.
        let is_queued = unsafe { engine.start_prepared(self.number) };
        if is_queued {
            let needs_driving = engine.needs_driving();
            drop(engine);
            self.share(needs_driving);
        }
    }

    /// Drives the operation, and says how it has ended once it is over.
    pub fn poll(&self) -> Option<Result<(), CollectiveError>> {
        if let Some(outcome) = self.request.outcome() {
            return Some(outcome);
        }
        let mut engine = self.communicator.engine.lock_if_free()?;
        if let Some(outcome) = engine.poll_posted(self.number) {
            return Some(outcome);
        }
        engine.progress();
        drop(engine);
        self.request.outcome()
    }

    /// Waits until the operation is over, if the ranks of this host alone take part in it and come soon.
    /// None if not: then it is to be [handed over](Self::hand_over).
    #[inline]
    pub fn wait_shortly(&self) -> Option<Result<(), CollectiveError>> {
        if self.complete_exchange() {
            return Some(Ok(()));
        }
        self.wait_shortly_for_any()
    }

    /// Waits until the operation is over, if it is posted as an exchange. `false` if not, or if it has
    /// failed.
    #[inline]
    fn complete_exchange(&self) -> bool {
        let Some(exchange) = &self.exchange else { return false };
        let complete = |engine: &mut Engine| engine.complete_exchange(exchange);
        self.communicator.engine.with_unshared(complete).unwrap_or(false)
    }

    /// [`wait_shortly`](Self::wait_shortly) for operations of any kind.
    #[inline(never)]
    fn wait_shortly_for_any(&self) -> Option<Result<(), CollectiveError>> {
        if !self.callers_take_turns {
            return self.poll_for_a_while();
        }
        let mut engine = self.communicator.engine.lock_if_free()?;
        let outcome = engine.complete_posted(self.number);
        drop(engine);
        outcome.or_else(|| self.request.outcome())
    }

    /// Polls for some ten microseconds, between which others may have the engine.
    fn poll_for_a_while(&self) -> Option<Result<(), CollectiveError>> {
        (0..POLLS).find_map(|_| {
            std::hint::spin_loop();
            self.poll()
        })
    }

    /// A request that stands for every start of the operation, once that was
    /// [handed over](Self::hand_over).
    #[must_use]
    pub fn request(&self) -> Request {
        self.request.clone()
    }

    /// Makes the start that is under way an operation like any other nonblocking one: it is driven, and
    /// its request tells of its end.
    pub fn hand_over(&self) {
        // A thread that has the engine for long is in a later operation, which ends this one first.
        while self.request.outcome().is_none() {
            if let Some(mut engine) = self.communicator.engine.lock_if_free() {
                engine.enqueue_posted();
                let needs_driving = engine.needs_driving();
                drop(engine);
                return self.share(needs_driving);
            }
            std::thread::yield_now();
        }
    }

    /// From here on the thread that drives requests may want the engine.
    fn share(&self, needs_driving: bool) {
        self.communicator.engine.share();
        if needs_driving {
            enlist(&self.communicator);
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.communicator.engine.lock().forget(self.number);
    }
}
