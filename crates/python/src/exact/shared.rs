//! What sums of one rank and of all ranks share: elements in memory, and the error of both.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tributary_exact::Overflow;

use crate::buffer::Buffer;
use crate::errors::TributaryError;

/// The elements of a buffer.
///
/// # Safety
/// The buffer's elements are of type `T`, and nobody writes to them while the slice is there.
pub(super) unsafe fn elements_of<T>(buffer: &Buffer) -> PyResult<&[T]> {
    let len = buffer.elements();
    if len == 0 {
        return Ok(&[]);
    }
    let pointer = buffer.pointer.cast::<T>().cast_const();
    if !pointer.is_aligned() {
        return Err(PyValueError::new_err("the elements do not lie at multiples of their size"));
    }
    // SAFETY: the buffer has as many elements, at a place for their type, for as long as it is there; the rest is the
    // caller's to know.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

pub(super) fn of_overflow(error: Overflow) -> PyErr {
    TributaryError::new_err(error.to_string())
}
