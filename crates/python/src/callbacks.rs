//! Python's callbacks, each on a thread that nothing else needs: one that waits for another operation, or for
//! another callback, holds up nobody.
//!
//! There are as many threads as callbacks run at the same time. A thread that has nothing to do for a while ends.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

/// How long a thread stays without a callback.
const IDLE_MAX: Duration = Duration::from_secs(5);

static POOL: Pool = Pool { state: Mutex::new(State::new()), changed: Condvar::new() };

struct Pool {
    state: Mutex<State>,
    /// There is a callback more.
    changed: Condvar,
}

struct State {
    due: VecDeque<Py<PyAny>>,
    /// Threads that wait for a callback.
    idle: usize,
    /// Whose threads these are: a child that a fork made has none of them.
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
            drop(state);
            run(callback);
            state = POOL.lock();
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
    while let Some(callback) = POOL.lock().due.pop_front() {
        run(callback);
    }
}

fn run(callback: Py<PyAny>) {
    let mut callback = Some(callback);
    let called = Python::try_attach(|py| {
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
            state.idle = 0;
            state.process = process;
        }
        state
    }
}

impl State {
    const fn new() -> Self {
        Self { due: VecDeque::new(), idle: 0, process: 0 }
    }
}
