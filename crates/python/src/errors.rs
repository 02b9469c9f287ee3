//! Errors as Python's exceptions: who is at fault is their type and their attributes.

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use tributary_client::CollectiveError;

create_exception!(
    tributary,
    TributaryError,
    PyRuntimeError,
    "What went wrong in an operation or in setting a communicator up. The base of the others."
);
create_exception!(
    tributary,
    SetUpError,
    TributaryError,
    "A communicator could not be made: ranks are missing, settings are not allowed, or the manager refused. \
     All ranks that were reached get the same message."
);
create_exception!(
    tributary,
    RankLostError,
    TributaryError,
    "A process on this host ended in the middle of a collective. Attribute `rank`: which."
);
create_exception!(
    tributary,
    HostLostError,
    TributaryError,
    "A host, or the aggregation tree, was lost. Attribute `host`: on or near which, or None."
);
create_exception!(
    tributary,
    AbortedError,
    TributaryError,
    "A rank has given the communicator up: it called `abort`, was interrupted, or dropped the communicator \
     with operations outstanding."
);

/// Adds the exceptions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("TributaryError", py.get_type::<TributaryError>())?;
    module.add("SetUpError", py.get_type::<SetUpError>())?;
    module.add("RankLostError", py.get_type::<RankLostError>())?;
    module.add("HostLostError", py.get_type::<HostLostError>())?;
    module.add("AbortedError", py.get_type::<AbortedError>())
}

/// A failed operation as an exception.
#[cold]
pub(crate) fn of_collective(py: Python<'_>, error: &CollectiveError) -> PyErr {
    let text = error.to_string();
    match error {
        CollectiveError::RankLost { rank, .. } => {
            with_attribute(py, RankLostError::new_err(text), "rank", *rank)
        }
        CollectiveError::TreeFailed { host, .. } | CollectiveError::HostLost { host, .. } => {
            with_attribute(py, HostLostError::new_err(text), "host", host.clone())
        }
        CollectiveError::GivenUp { .. } => AbortedError::new_err(text),
        CollectiveError::NotDefined { .. } | CollectiveError::NoSuchPair { .. } => {
            PyTypeError::new_err(text)
        }
        CollectiveError::NoSuchRoot { .. } | CollectiveError::Blocks { .. } => {
            PyValueError::new_err(text)
        }
        _ => TributaryError::new_err(text),
    }
}

fn with_attribute<'py>(
    py: Python<'py>,
    error: PyErr,
    name: &str,
    value: impl IntoPyObject<'py>,
) -> PyErr {
    // An exception takes any attribute; if it does not, its message still says it.
    let _ = error.value(py).setattr(name, value);
    error
}
