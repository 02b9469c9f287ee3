//! A nonblocking operation, from its start until everyone has let go of it.

use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::prelude::*;
use tributary_client::{CollectiveError, Operation};

use crate::arguments::{Asked, Held};
use crate::callbacks;

/// What its requests and the lane share.
pub(crate) struct Pending {
    pub(crate) operation: Operation,
    /// Exported until the operation is over.
    held: Mutex<Option<Held>>,
    outcome: OnceLock<Result<(), CollectiveError>>,
    callbacks: Mutex<Vec<Py<PyAny>>>,
}

// SAFETY: the operation's pointers lead into `held`; the thread that runs it answers for them.
unsafe impl Sync for Pending {}

impl Pending {
    pub(crate) fn new(asked: Asked) -> Self {
        let Asked { operation, held } = asked;
        let (outcome, callbacks) = (OnceLock::new(), Mutex::default());
        Self { operation, held: Mutex::new(Some(held)), outcome, callbacks }
    }

    pub(crate) fn outcome(&self) -> Option<&Result<(), CollectiveError>> {
        self.outcome.get()
    }

    /// The operation is over. Not to be called attached to the interpreter.
    pub(crate) fn finish(&self, outcome: Result<(), CollectiveError>) {
        let callbacks = {
            let mut callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            // Under the lock, so that no callback comes in between.
            let _ = self.outcome.set(outcome);
            std::mem::take(&mut *callbacks)
        };
        if !callbacks.is_empty() {
            callbacks::call_soon(callbacks);
        }
    }

    /// Lets the buffers go, once the operation is over. To be called attached to the interpreter.
    pub(crate) fn release(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }

    /// Calls `callback` once the operation is over, at once if it is.
    pub(crate) fn when_done(&self, py: Python<'_>, callback: Py<PyAny>) {
        let mut callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        if self.outcome.get().is_none() {
            callbacks.push(callback);
            return;
        }
        drop(callbacks);
        callbacks::call(py, &callback);
    }
}
