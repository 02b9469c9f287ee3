//! Nonblocking operations, as C holds them.
//!
//! Two known clients take every answer of a test but 0 for success, so a request that failed is never over
//! for a test: see [`test()`].

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Instant;

use tributary_client::{CollectiveError, Request};
use tributary_shm_collectives::waiting::Waiter;

use crate::communicator::Group;
use crate::failure::Failure;
use crate::handles::{Handle, Table};
use crate::log::{self, Level};
use crate::work::Work;

static REQUESTS: Table<Pending> = Table::new(3);

/// A request of the client.
struct Pending(Mutex<State>);

enum State {
    Running(Running),
    Over,
    Failed { failure: Failure, since: Instant, aborts_at: Option<Instant> },
}

/// What is needed until the operations are over.
struct Running {
    /// Those that are not over yet are at the end.
    requests: Vec<Request>,
    done: usize,
    /// How the client's thread rests between tests, which it may do without a pause.
    waiter: Option<Waiter>,
    work: Work,
    group: Arc<Group>,
}

/// Starts work.
///
/// # Errors
/// If it can't be started.
///
/// # Safety
/// The client's buffers are valid, and nobody else uses them, until the request is over.
pub(crate) unsafe fn start(group: Arc<Group>, work: Work) -> Result<Handle, Failure> {
    forget_abandoned();
    // SAFETY: as the caller promises; the request keeps the work until it is over.
    let requests = match unsafe { work.start(&group) } {
        Ok(requests) => requests,
        Err(failure) => {
            // Operations before the one that failed may be under way with what the work has.
            std::mem::forget(work);
            return Err(failure);
        }
    };
    let running = Running { requests, done: 0, waiter: None, work, group };
    Ok(REQUESTS.insert(Arc::new(Pending(Mutex::new(State::Running(running))))))
}

/// Goes on with a request: 1 if it is over, else 0. One that failed stays at 0: it logs why, and after the
/// context's time the process is aborted, if it is to be.
pub(crate) fn test(handle: Handle) -> c_int {
    let Some(pending) = REQUESTS.find(handle) else {
        if REQUESTS.was_freed(handle) {
            return 1;
        }
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            log::write(Level::Error, || {
                format!("{handle:p} is no request: a client tests what failed to start; it stays pending")
            });
        });
        return 0;
    };
    let mut state = pending.lock();
    let was_running = matches!(*state, State::Running(_));
    state.progress();
    match &mut *state {
        State::Running(running) => {
            running.rest();
            0
        }
        State::Over => {
            drop(state);
            if was_running {
                note_over(handle);
            }
            1
        }
        State::Failed { failure, since, aborts_at } => {
            if aborts_at.is_some_and(|at| Instant::now() >= at) {
                abort(failure, since);
            }
            0
        }
    }
}

/// Waits for a request. It is freed, unless it failed.
///
/// # Errors
/// Why it failed, or that it is none.
pub(crate) fn wait(handle: Handle) -> Result<(), Failure> {
    let pending = REQUESTS.find(handle).ok_or_else(|| no_request(handle))?;
    loop {
        let mut state = pending.lock();
        state.progress();
        let progress = match &mut *state {
            State::Running(running) => {
                running.rest();
                running.group.context.progress
            }
            State::Over => break,
            State::Failed { failure, .. } => return Err(failure.clone()),
        };
        // The client may test this request from there.
        drop(state);
        if let Some(progress) = progress {
            // SAFETY: the header asks for a function that may be called in blocking calls.
            unsafe { progress() };
        }
    }
    REQUESTS.remove(handle);
    Ok(())
}

/// Frees a request. One that was over and forgotten counts as freed only now.
///
/// # Errors
/// If it is none.
pub(crate) fn free(handle: Handle) -> Result<(), Failure> {
    match REQUESTS.remove(handle) {
        Some(pending) => {
            abandon(pending);
            Ok(())
        }
        None if REQUESTS.was_freed(handle) => Ok(()),
        None => Err(no_request(handle)),
    }
}

fn no_request(handle: Handle) -> Failure {
    Failure::invalid(format!("{handle:p} is no request"))
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn progress(&mut self) {
        let Self::Running(running) = self else { return };
        let over = match running.progress() {
            Ok(false) => return,
            Ok(true) => {
                // SAFETY: the operations are over, and the client has not heard of it yet.
                unsafe { running.work.land() };
                Self::Over
            }
            Err(error) => running.fail_request(error.into()),
        };
        *self = over;
    }
}

impl Running {
    /// Whether all operations are over.
    fn progress(&mut self) -> Result<bool, CollectiveError> {
        while let Some(request) = self.requests.get(self.done) {
            if !request.test()? {
                return Ok(false);
            }
            self.done += 1;
        }
        Ok(true)
    }

    /// Lets a little time pass, for the ranks that have to go on before this one can: clients test without a pause,
    /// and where cores are short they would keep the others from theirs. 50 us at most.
    fn rest(&mut self) {
        let request = &self.requests[self.done];
        request.rest(self.waiter.get_or_insert_with(|| request.waiter()));
    }

    fn fail_request(&mut self, failure: Failure) -> State {
        log::write(Level::Error, || format!("a nonblocking operation failed: {failure}"));
        let since = Instant::now();
        let aborts_at = self.group.context.aborts_after.map(|after| since + after);
        State::Failed { failure, since, aborts_at }
    }
}

fn abort(failure: &Failure, since: &Instant) -> ! {
    log::write(Level::Fatal, || {
        format!(
            "{failure}. The client has tested the operation for {:?} since, and can't be told: the \
             process ends (TRIBUTARY_SHARP_FAILURE=stall lets it wait for ever)",
            since.elapsed()
        )
    });
    std::process::abort()
}

/// Requests that are over and were not freed, at most: some clients never free any.
const OVER_MAX: usize = 1 << 16;

/// A client has heard that a request is over. The oldest of too many is freed in its place.
fn note_over(handle: Handle) {
    static OVER: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());
    let mut over = OVER.lock().unwrap_or_else(PoisonError::into_inner);
    over.push_back(handle.addr());
    if over.len() > OVER_MAX {
        let oldest = over.pop_front().expect("more than none");
        REQUESTS.remove(std::ptr::without_provenance_mut(oldest));
    }
}

/// Requests that were freed before they were over.
static ABANDONED: Mutex<Vec<Arc<Pending>>> = Mutex::new(Vec::new());

/// Keeps what a freed request needs until it is over.
fn abandon(pending: Arc<Pending>) {
    pending.lock().progress();
    if matches!(*pending.lock(), State::Running(_)) {
        ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).push(pending);
    }
}

fn forget_abandoned() {
    let mut abandoned = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    abandoned.retain(|pending| {
        let mut state = pending.lock();
        state.progress();
        matches!(*state, State::Running(_))
    });
}
