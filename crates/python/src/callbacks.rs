//! Python's callbacks, each on a thread that nothing else needs: one that waits for another operation, or for
//! another callback, holds up nobody.
//!
//! There are as many threads as callbacks run at the same time. A thread that has nothing to do for a while ends. The
//! process does not end in the middle of a callback: the interpreter, on its way out, would end the callback's thread
//! inside whatever library the callback is in, and C++ ends the process then.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::seconds;

/// How long a thread stays without a callback.
const IDLE_MAX: Duration = Duration::from_secs(5);

static POOL: Pool = Pool { state: Mutex::new(State::new()), changed: Condvar::new() };

/// Held for reading by threads that attach to the interpreter. To attach, a thread takes a lock of the interpreter's, though another has
/// the interpreter; and Python 3.11 waits for that lock in the child of a fork, in which the thread is not there to let go of it.
static ATTACHING: RwLock<()> = RwLock::new(());

struct Pool {
    state: Mutex<State>,
    /// There is a callback more, or one has ended.
    changed: Condvar,
}

struct State {
    due: VecDeque<Py<PyAny>>,
    /// Threads that wait for a callback.
    idle: usize,
    /// Callbacks that have begun, and not ended.
    running: usize,
    /// The process of these threads: a child that a fork made has none of them.
    process: u32,
}

/// Calls `callback` soon, on another thread.
#[pyfunction]
pub(crate) fn call_beside(py: Python<'_>, callback: Py<PyAny>) {
    py.detach(|| call_soon([callback]));
}

/// Calls each callback soon, on another thread. Not to be called attached to the interpreter.
pub(crate) fn call_soon(callbacks: impl IntoIterator<Item = Py<PyAny>>) {
    let mut state = POOL.lock();
    state.due.extend(callbacks);
    for _ in state.idle..state.due.len() {
        let thread = std::thread::Builder::new().name("tributary-callback".to_owned());
        if thread.spawn(serve).is_err() {
            // The system has no thread to give. This one is late then, but nothing is lost.
            drop(state);
            return run_all();
        }
    }
    POOL.changed.notify_all();
}

thread_local! {
    /// What is locked while this thread forks. Another thread that held a lock at that moment would not be there to let go of it
    /// in the child.
    static LOCKED_FOR_FORK: RefCell<Option<LockedForFork>> = const { RefCell::new(None) };
}

type LockedForFork = (RwLockWriteGuard<'static, ()>, MutexGuard<'static, State>);

/// Before Python forks. Threads that attach wait for the interpreter; no holder of the pool does.
#[pyfunction]
fn lock_for_fork(py: Python<'_>) {
    py.detach(|| {
        let attaching = ATTACHING.write().unwrap_or_else(PoisonError::into_inner);
        LOCKED_FOR_FORK.set(Some((attaching, POOL.lock())));
    });
}

/// After the fork, in the parent and in the child.
#[pyfunction]
fn unlock_after_fork() {
    LOCKED_FOR_FORK.take();
}

/// Has Python lock the pool around its forks.
pub(crate) fn guard_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let handlers = PyDict::new(module.py());
    handlers.set_item("before", wrap_pyfunction!(lock_for_fork, module)?)?;
    for side in ["after_in_parent", "after_in_child"] {
        handlers.set_item(side, wrap_pyfunction!(unlock_after_fork, module)?)?;
    }
    module.py().import("os")?.getattr("register_at_fork")?.call((), Some(&handlers))?;
    Ok(())
}

/// Waits until no callback is due or runs, for `timeout` seconds at most. Whether that is so.
#[pyfunction]
pub(crate) fn await_callbacks(py: Python<'_>, timeout: f64) -> PyResult<bool> {
    let until = Instant::now() + seconds(timeout)?;
    Ok(py.detach(|| POOL.await_end(until)))
}

/// Calls a callback here. What it raises is printed: there is nobody to raise it to.
pub(crate) fn call(py: Python<'_>, callback: &Py<PyAny>) {
    if let Err(error) = callback.call0(py) {
        error.write_unraisable(py, Some(callback.bind(py)));
    }
}

fn serve() {
    let mut state = POOL.lock();
    loop {
        if let Some(callback) = state.due.pop_front() {
            state = POOL.run(state, callback);
            continue;
        }
        state.idle += 1;
        let (woken, waited) =
            POOL.changed.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if waited.timed_out() && state.due.is_empty() {
            return;
        }
    }
}

fn run_all() {
    let mut state = POOL.lock();
    while let Some(callback) = state.due.pop_front() {
        state = POOL.run(state, callback);
    }
}

fn run(callback: Py<PyAny>) {
    let mut callback = Some(callback);
    let attaching = ATTACHING.read().unwrap_or_else(PoisonError::into_inner);
    let called = Python::try_attach(|py| {
        drop(attaching);
        if let Some(callback) = callback.take() {
            call(py, &callback);
        }
    });
    if called.is_none() {
        // The interpreter is going away, and its objects are no longer to be touched.
        std::mem::forget(callback);
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if state.process != process {
            // After a fork. The parent calls what was due there.
            state.due.drain(..).for_each(std::mem::forget);
            (state.idle, state.running) = (0, 0);
            state.process = process;
        }
        state
    }

    fn run<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        callback: Py<PyAny>,
    ) -> MutexGuard<'a, State> {
        state.running += 1;
        drop(state);
        run(callback);
        state = self.lock();
        // Zero in a child that the callback forked.
        state.running = state.running.saturating_sub(1);
        self.changed.notify_all();
        state
    }

    fn await_end(&self, until: Instant) -> bool {
        let mut state = self.lock();
        while state.running > 0 || !state.due.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl State {
    const fn new() -> Self {
        Self { due: VecDeque::new(), idle: 0, running: 0, process: 0 }
    }
}
