//! The extension module of the Python package: communicators over the buffers of Python objects.
//!
//! Translates between Python and `tributary-client`. Owns what Python adds to it: buffers that stay exported
//! while an operation is outstanding ([`buffer`]), the thread that carries nonblocking ones ([`lane`]), and
//! errors as exceptions ([`errors`]). The interpreter's lock is never held while anything waits. Package and
//! documentation are in `python/tributary`.

mod arguments;
mod bootstrap;
mod buffer;
mod callbacks;
mod communicator;
mod dlpack;
mod element;
mod errors;
mod exact;
mod interrupt;
mod lane;
mod membership;
mod pending;
mod process;
mod request;
mod split;

use pyo3::prelude::*;

/// Collectives in aggregation trees; see the package `tributary`.
#[pymodule]
fn _tributary(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<request::Request>()?;
    module.add_class::<exact::ExactSum>()?;
    module.add_function(wrap_pyfunction!(callbacks::call_beside, module)?)?;
    module.add_function(wrap_pyfunction!(callbacks::await_callbacks, module)?)?;
    module.add_function(wrap_pyfunction!(process::report, module)?)?;
    module.add_function(wrap_pyfunction!(process::finish, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    callbacks::guard_forks(module)?;
    errors::register(module)
}
