//! Python's signals while an operation waits: a program that is interrupted must not wait on for its peers.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How often a wait lets Python look at its signals.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    /// When this thread looks next; none while it is in no call from Python.
    static LOOKS_AT: Cell<Option<Instant>> = const { Cell::new(None) };
    /// What a signal's handler raised.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs `wait`, in which [`is_raised`] may be asked. The exception that a signal's handler raised meanwhile.
pub(crate) fn watch_interrupts<T>(wait: impl FnOnce() -> T) -> (T, Option<PyErr>) {
    LOOKS_AT.set(Some(Instant::now() + LOOK_INTERVAL));
    let outcome = wait();
    LOOKS_AT.set(None);
    (outcome, RAISED.take())
}

/// Whether a signal's handler has raised an exception, on a thread in [`watch_interrupts`].
pub(crate) fn is_raised() -> bool {
    let Some(looks_at) = LOOKS_AT.get() else { return false };
    let now = Instant::now();
    if now < looks_at {
        return false;
    }
    LOOKS_AT.set(Some(now + LOOK_INTERVAL));
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    let is_raised = raised.is_some();
    if is_raised {
        RAISED.replace(raised);
    }
    is_raised
}
