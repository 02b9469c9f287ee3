//! The memory of a Python object, used in place: by the buffer protocol or by DLPack.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::dlpack::Tensor;
use crate::element::Element;

/// Memory that its object keeps where it is until this is dropped.
pub(crate) struct Buffer {
    /// What holds the object to it.
    _export: Export,
    pub(crate) element: Element,
    pub(crate) pointer: *mut u8,
    pub(crate) len_bytes: usize,
    is_read_only: bool,
}

enum Export {
    Protocol { _buffer: PyUntypedBuffer },
    Dlpack { _tensor: Tensor },
}

// SAFETY: the pointer is followed by operations alone, whose caller answers for them.
unsafe impl Send for Buffer {}
// SAFETY: as above; everything else is plain.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The memory of `object`, to read.
    pub(crate) fn source(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        Self::open(object).map_err(|error| add_name(object.py(), name, &error))
    }

    /// The memory of `object`, to write.
    pub(crate) fn target(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let buffer = Self::source(object, name)?;
        if buffer.is_read_only {
            return Err(PyBufferError::new_err(format!("{name} is read-only")));
        }
        Ok(buffer)
    }

    fn open(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if is_numpy_bfloat16(object) {
            // NumPy refuses to export what the buffer protocol has no letter for.
            let words = object.call_method1("view", ("uint16",))?;
            return Ok(Self { element: Element::bfloat16(), ..Self::by_protocol(&words)? });
        }
        // SAFETY: any object may be asked, attached to the interpreter.
        if unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0 {
            return Self::by_protocol(object);
        }
        if object.is_instance_of::<PyCapsule>() || object.hasattr("__dlpack__")? {
            return Ok(Self::by_dlpack(Tensor::of(object)?));
        }
        let kind = object.get_type().qualname()?;
        Err(PyTypeError::new_err(format!(
            "a {kind} has neither the buffer protocol nor __dlpack__"
        )))
    }

    fn by_protocol(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = match PyUntypedBuffer::get(object) {
            // An array without dimensions exports no shape, but a view with one.
            Err(_) if object.getattr("ndim").is_ok_and(|ndim| ndim.eq(0).unwrap_or(false)) => {
                PyUntypedBuffer::get(&object.call_method1("reshape", (1,))?)?
            }
            outcome => outcome?,
        };
        if buffer.suboffsets().is_some() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "not contiguous: its elements must lie one behind the other, the last index fastest",
            ));
        }
        let format = buffer.format().to_string_lossy();
        // Every other piece between colons is the name of a member.
        if format.split(':').step_by(2).any(|codes| codes.contains('O')) {
            return Err(PyTypeError::new_err(
                "its elements are Python objects, which have no bytes to move",
            ));
        }
        Ok(Self {
            element: Element::from_format(&format, buffer.item_size()),
            pointer: buffer.buf_ptr().cast(),
            len_bytes: buffer.len_bytes(),
            is_read_only: buffer.readonly(),
            _export: Export::Protocol { _buffer: buffer },
        })
    }

    fn by_dlpack(tensor: Tensor) -> Self {
        Self {
            element: tensor.element.clone(),
            pointer: tensor.pointer,
            len_bytes: tensor.len_bytes,
            is_read_only: tensor.is_read_only,
            _export: Export::Dlpack { _tensor: tensor },
        }
    }

    /// How many elements it has.
    pub(crate) fn elements(&self) -> usize {
        self.len_bytes.checked_div(self.element.size_bytes).unwrap_or(0)
    }

    /// Whether the two share memory.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (own, its) = (self.pointer as usize, other.pointer as usize);
        own < its + other.len_bytes && its < own + self.len_bytes
    }
}

/// The same error, saying which argument it is about.
fn add_name(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    let text = format!("{name}: {}", error.value(py));
    let named = if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(text)
    } else {
        PyBufferError::new_err(text)
    };
    named.set_cause(py, Some(error.clone_ref(py)));
    named
}

/// Whether it is an array of ml_dtypes' bfloat16.
fn is_numpy_bfloat16(object: &Bound<'_, PyAny>) -> bool {
    let is_it = || -> PyResult<bool> {
        let dtype = object.getattr("dtype")?;
        let is_numpy = dtype.get_type().module()?.to_string().starts_with("numpy");
        Ok(is_numpy && dtype.getattr("name")?.eq("bfloat16")?)
    };
    is_it().unwrap_or(false)
}
