//! Nonblocking operations from the caller's side, and the thread that drives them meanwhile.
//!
//! MPI promises that a started operation completes whatever its process does next, so while any is
//! outstanding one thread of the process polls them now and then. It never calls MPI.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::operation::CollectiveError;
use crate::request_state::RequestState;
use crate::shared::Shared;
use tributary_inter_host::threads;
use tributary_shm_collectives::waiting::{NAP_MAX, Policy, Waiter};

/// An operation that was started.
///
/// Dropping it does not cancel the operation: its buffers stay in use until it is done.
#[derive(Clone)]
pub struct Request {
    state: Arc<RequestState>,
    communicator: Arc<Shared>,
}

impl Request {
    pub(crate) fn new(state: Arc<RequestState>, communicator: Arc<Shared>) -> Self {
        Self { state, communicator }
    }

    /// The result, once there is one; drives nothing.
    pub(crate) fn outcome(&self) -> Option<Result<(), CollectiveError>> {
        self.state.outcome()
    }

    /// Drives the communicator a little and says whether the operation is done.
    ///
    /// # Errors
    /// If the operation failed.
    pub fn test(&self) -> Result<bool, CollectiveError> {
        if self.state.outcome().is_none() {
            self.communicator.try_progress();
        }
        self.state.outcome().map_or(Ok(false), |outcome| outcome.map(|()| true))
    }

    /// Waits until the operation is done.
    ///
    /// # Errors
    /// If the operation failed.
    pub fn wait(&self) -> Result<(), CollectiveError> {
        let mut waiter = self.communicator.waiter();
        loop {
            if let Some(outcome) = self.state.outcome() {
                return outcome;
            }
            self.communicator.progress_or_pause(&mut waiter);
        }
    }

    /// A waiter for [`Self::rest`].
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        self.communicator.napping_waiter(NAP_MAX)
    }

    /// Lets a little time pass in a wait that this operation may end, or something that only the
    /// caller can look at between two calls.
    ///
    /// With a core for every process it goes on polling. With fewer it drives nothing, for the caller
    /// does, and soon sleeps until the operation can go on, but for 50 us at most, or a 64th of a long wait. It must
    /// sleep: a wait that only yields can keep the core from all other sessions for seconds, and what it waits for
    /// with them (docs/decisions/0019).
    pub fn rest(&self, waiter: &mut Waiter) {
        if self.communicator.policy == Policy::Sleep {
            // Relaxed: only a number.
            RESTS.fetch_add(1, Ordering::Relaxed);
        }
        self.communicator.try_rest(waiter);
    }
}

/// Between two polls of what is outstanding, by the thread, for a program that does something else.
const INTERVAL: Duration = Duration::from_micros(100);
/// The same where cores are short and the program waits, and so drives its operations itself: each poll keeps others from
/// the cores.
const INTERVAL_BESIDE_WAIT: Duration = Duration::from_millis(2);

/// How often the program has rested in a wait where cores are short.
static RESTS: AtomicU32 = AtomicU32::new(0);

#[derive(Default)]
struct Outstanding {
    communicators: Mutex<Vec<Arc<Shared>>>,
    has_work: Condvar,
}

fn outstanding() -> &'static Outstanding {
    static OUTSTANDING: OnceLock<Outstanding> = OnceLock::new();
    OUTSTANDING.get_or_init(Outstanding::default)
}

/// Takes a communicator on until its operations are done.
pub(crate) fn enlist(communicator: &Arc<Shared>) {
    static THREAD: OnceLock<bool> = OnceLock::new();
    let all = outstanding();
    let mut list = all.communicators.lock().unwrap_or_else(PoisonError::into_inner);
    if !list.iter().any(|known| Arc::ptr_eq(known, communicator)) {
        list.push(Arc::clone(communicator));
        all.has_work.notify_one();
    }
    drop(list);
    // Where no thread can be had, operations still progress whenever the program calls in.
    THREAD.get_or_init(|| threads::spawn("tributary", drive).is_ok());
}

/// Advances every outstanding operation of this process.
fn progress() {
    let list = {
        let all = outstanding().communicators.lock();
        all.unwrap_or_else(PoisonError::into_inner).clone()
    };
    list.iter().for_each(|communicator| communicator.try_progress());
}

fn drive() {
    let all = outstanding();
    let mut interval = INTERVAL;
    let mut rests = 0;
    loop {
        let mut list = all.communicators.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|communicator| !communicator.is_idle());
        while list.is_empty() {
            list = all.has_work.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        drop(list);
        // First the pause: a program that waits at once needs no help.
        std::thread::sleep(interval);
        let rests_now = RESTS.load(Ordering::Relaxed);
        let is_waiting = std::mem::replace(&mut rests, rests_now) != rests_now;
        interval = if is_waiting { (2 * interval).min(INTERVAL_BESIDE_WAIT) } else { INTERVAL };
        progress();
    }
}
