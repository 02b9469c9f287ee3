//! A Python object that exchanges bytes between ranks, as the host library's bootstrap.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tributary_client::{Bootstrap, BootstrapError};

/// An object with `allgather(bytes) -> bytes`: everyone's, of equal lengths, in rank order.
pub(crate) struct Exchange {
    object: Py<PyAny>,
    rank: u32,
    size: u32,
    /// What the object raised.
    raised: Option<PyErr>,
}

impl Exchange {
    pub(crate) fn new(object: Py<PyAny>, rank: u32, size: u32) -> Self {
        Self { object, rank, size, raised: None }
    }

    /// What the object raised, if it did.
    pub(crate) fn into_raised(self) -> Option<PyErr> {
        self.raised
    }

    fn call(&self, py: Python<'_>, mine: &[u8], all: &mut [u8]) -> PyResult<Result<(), usize>> {
        let gathered = self.object.call_method1(py, "allgather", (PyBytes::new(py, mine),))?;
        let gathered = gathered.bind(py).cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
        if gathered.len() != all.len() {
            return Ok(Err(gathered.len()));
        }
        all.copy_from_slice(gathered);
        Ok(Ok(()))
    }
}

impl Bootstrap for Exchange {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        let outcome = Python::try_attach(|py| match self.call(py, mine, all) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(length)) => {
                Err((format!("{length} bytes came where {} are due", all.len()), None))
            }
            Err(error) => Err((error.to_string(), Some(error))),
        });
        let gone = || Err(("the interpreter is going away".to_owned(), None));
        outcome.unwrap_or_else(gone).map_err(|(problem, raised)| {
            self.raised = raised;
            BootstrapError(problem)
        })
    }
}
