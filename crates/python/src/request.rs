//! `tributary.Request`: a nonblocking operation.

use std::sync::Arc;

use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;

use crate::arguments::seconds;
use crate::errors;
use crate::interrupt;
use crate::lane::Lane;
use crate::pending::Pending;

/// A nonblocking operation. Its buffers stay exported until it is over, whether this object lives or not;
/// until then nobody may write to them, or read from the target.
///
/// `await request` waits for it in a coroutine of asyncio.
#[pyclass(frozen, module = "tributary")]
pub(crate) struct Request {
    lane: Arc<Lane>,
    pending: Arc<Pending>,
}

impl Request {
    pub(crate) fn new(lane: Arc<Lane>, pending: Arc<Pending>) -> Self {
        Self { lane, pending }
    }

    /// Raises if the operation failed; it is over.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.pending.release();
        match self.pending.outcome() {
            Some(Err(error)) => Err(errors::of_collective(py, error)),
            _ => Ok(()),
        }
    }
}

#[pymethods]
impl Request {
    /// Waits until the operation is over; other threads run meanwhile.
    ///
    /// `timeout` is in seconds. After a TimeoutError the operation is still outstanding. An interrupt
    /// (KeyboardInterrupt) that comes while this call carries the operation itself gives the communicator up.
    ///
    /// Raises TimeoutError, RankLostError, HostLostError, AbortedError.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let limit = timeout.map(seconds).transpose()?;
        if self.pending.outcome().is_none() {
            let wait = || self.lane.wait(&self.pending, limit);
            let (is_over, raised) = py.detach(|| interrupt::watch_interrupts(wait));
            if let Some(raised) = raised {
                return Err(raised);
            }
            if !is_over {
                let after_s = timeout.unwrap_or_default();
                return Err(PyTimeoutError::new_err(format!(
                    "the operation is not over after {after_s} s: other ranks have not come to it, or are slow"
                )));
            }
        }
        self.settle(py)
    }

    /// Whether the operation is over. Raises what it raised, if it failed.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        if self.pending.outcome().is_none() {
            return Ok(false);
        }
        self.settle(py).map(|()| true)
    }

    /// Whether the operation is over, well or not. Never raises.
    fn done(&self) -> bool {
        self.pending.outcome().is_some()
    }

    /// Calls `callback` once the operation is over: at once if it is, else on another thread.
    fn add_done_callback(&self, py: Python<'_>, callback: Py<PyAny>) {
        self.pending.when_done(py, callback);
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("tributary._asyncio")?.call_method1("completion", (slf,))
    }
}
