//! One communicator's operations in the order in which they were asked for: blocking ones on the thread that
//! asks, nonblocking ones on a thread of the lane, or on one that waits for them.
//!
//! The client could carry nonblocking operations itself. It then polls them now and then beside the program,
//! which is right for MPI's and too slow for gradients that are to be reduced while others are computed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tributary_client::{CollectiveError, Communicator, Operation, Verdict};

use crate::interrupt;
use crate::pending::Pending;

/// A communicator, and who runs its operations.
pub(crate) struct Lane {
    communicator: Communicator,
    order: Mutex<Order>,
    /// An operation is over, or there is one more.
    changed: Condvar,
    gives_up: Arc<AtomicBool>,
}

/// Whether a lane's operations are no longer wanted, for the hook of its communicator.
pub(crate) fn verdict(gives_up: &AtomicBool) -> Verdict {
    // Relaxed: a flag, nothing is published with it.
    if gives_up.load(Ordering::Relaxed) || interrupt::is_raised() {
        return Verdict::GiveUp;
    }
    Verdict::GoOn
}

#[derive(Default)]
struct Order {
    queue: VecDeque<Arc<Pending>>,
    /// Whether a thread is in an operation.
    is_running: bool,
    /// Threads that wait for a change.
    waiting: usize,
    has_thread: bool,
    is_closed: bool,
}

impl Lane {
    /// `gives_up` is what the communicator's hook asks.
    pub(crate) fn new(communicator: Communicator, gives_up: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self { communicator, order: Mutex::default(), changed: Condvar::new(), gives_up })
    }

    pub(crate) fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// Runs an operation to its end, behind those that were started.
    ///
    /// # Safety
    /// As [`Communicator::run`].
    pub(crate) unsafe fn run(&self, operation: &Operation) -> Result<(), CollectiveError> {
        let mut order = self.lock();
        while order.is_running || !order.queue.is_empty() {
            order = self.run_next_or_wait(order, interrupt::LOOK_INTERVAL);
            if interrupt::is_raised() {
                drop(order);
                self.give_up();
                order = self.lock();
            }
        }
        order.is_running = true;
        drop(order);
        // SAFETY: as the caller of this function promises.
        let outcome = unsafe { self.communicator.run(operation) };
        drop(self.end_run(self.lock()));
        outcome
    }

    /// Queues an operation behind those that were started.
    ///
    /// # Safety
    /// As [`Communicator::start`], until the operation is over. What it holds keeps its buffers valid.
    pub(crate) unsafe fn start(self: &Arc<Self>, pending: Arc<Pending>) {
        let mut order = self.lock();
        order.queue.push_back(pending);
        if !order.has_thread {
            let lane = Arc::clone(self);
            let thread = std::thread::Builder::new().name("tributary-lane".to_owned());
            // Without a thread, the caller that waits for operations runs them.
            order.has_thread = thread.spawn(move || lane.serve()).is_ok();
        }
        self.notify(&order);
    }

    /// Waits until an operation is over, for `timeout` at most. Whether it is.
    pub(crate) fn wait(&self, pending: &Pending, timeout: Option<Duration>) -> bool {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut order = self.lock();
        while pending.outcome().is_none() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) || interrupt::is_raised() {
                return false;
            }
            let nap = left.unwrap_or(interrupt::LOOK_INTERVAL).min(interrupt::LOOK_INTERVAL);
            // A caller that has only so much time can't take an operation on that may need more.
            order = match timeout {
                None => self.run_next_or_wait(order, nap),
                Some(_) => self.sleep(order, nap),
            };
        }
        true
    }

    /// Whether nothing is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        let order = self.lock();
        order.queue.is_empty() && !order.is_running
    }

    /// Gives the communicator up at all ranks: what is outstanding ends with an error.
    pub(crate) fn give_up(&self) {
        // Relaxed: a flag; the lock below orders it for who runs next.
        self.gives_up.store(true, Ordering::Relaxed);
        let order = self.lock();
        if !order.is_running {
            // Nobody would ask the hook.
            self.communicator.give_up();
        }
    }

    /// Lets the lane's thread end, once nothing is queued any more.
    pub(crate) fn close(&self) {
        let mut order = self.lock();
        order.is_closed = true;
        self.changed.notify_all();
    }

    /// The lane's thread.
    fn serve(&self) {
        let mut order = self.lock();
        while !order.is_closed || !order.queue.is_empty() {
            order = self.run_next_or_wait(order, Duration::MAX);
        }
    }

    /// Runs the operation that is next; if there is none, or another thread is in one, waits for a change.
    fn run_next_or_wait<'a>(
        &'a self,
        mut order: MutexGuard<'a, Order>,
        nap: Duration,
    ) -> MutexGuard<'a, Order> {
        if order.is_running {
            return self.sleep(order, nap);
        }
        let Some(pending) = order.queue.pop_front() else { return self.sleep(order, nap) };
        order.is_running = true;
        drop(order);
        // SAFETY: the pending operation holds its buffers, and the caller that started it has promised the rest.
        let outcome = unsafe { self.communicator.run(&pending.operation) };
        pending.finish(outcome);
        drop(pending);
        self.end_run(self.lock())
    }

    fn end_run<'a>(&self, mut order: MutexGuard<'a, Order>) -> MutexGuard<'a, Order> {
        order.is_running = false;
        // Relaxed: as in `give_up`. The operation may have asked its hook for the last time before the flag was set.
        if self.gives_up.load(Ordering::Relaxed) {
            self.communicator.give_up();
        }
        self.notify(&order);
        order
    }

    fn notify(&self, order: &Order) {
        if order.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn sleep<'a>(&self, mut order: MutexGuard<'a, Order>, nap: Duration) -> MutexGuard<'a, Order> {
        order.waiting += 1;
        let (mut order, _) =
            self.changed.wait_timeout(order, nap).unwrap_or_else(PoisonError::into_inner);
        order.waiting -= 1;
        order
    }

    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
