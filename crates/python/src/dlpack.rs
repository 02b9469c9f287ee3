//! Memory by DLPack: what a capsule of `__dlpack__` holds, taken over from its producer.
//!
//! Layouts are those of DLPack 1.0, and of the unversioned structure before it.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::element::Element;

/// A tensor that a producer has lent; given back when dropped.
pub(crate) struct Tensor {
    managed: Managed,
    pub(crate) element: Element,
    pub(crate) is_read_only: bool,
    pub(crate) pointer: *mut u8,
    pub(crate) len_bytes: usize,
}

// SAFETY: the structure is this value's alone, and its deleter may be called on any thread that is attached to
// the interpreter, as `drop` is.
unsafe impl Send for Tensor {}
// SAFETY: nothing is reached through a shared reference but plain numbers.
unsafe impl Sync for Tensor {}

enum Managed {
    Unversioned(NonNull<ManagedTensor>),
    Versioned(NonNull<ManagedTensorVersioned>),
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    type_code: u8,
    type_bits: u8,
    type_lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct ManagedTensor {
    tensor: DlTensor,
    manager_context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

#[repr(C)]
struct ManagedTensorVersioned {
    major: u32,
    minor: u32,
    manager_context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

const UNVERSIONED: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const USED_UNVERSIONED: &CStr = c"used_dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
/// The version that is asked for, and the only major one that is understood.
const VERSION: (u32, u32) = (1, 0);
const FLAG_READ_ONLY: u64 = 1;
/// Memory of the processor, and such memory that an accelerator has pinned.
const HOST_DEVICES: [i32; 3] = [1, 3, 11];

impl Tensor {
    /// The memory of `object`, which is a capsule of DLPack or has `__dlpack__`.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_capsule = object.is_instance_of::<PyCapsule>();
        let capsule = if is_capsule { object.clone() } else { capsule_of(object)? };
        let managed = Managed::take(&capsule)?;
        // From here on dropping it gives it back.
        let mut tensor = Self {
            managed,
            element: Element::from_dlpack(0, 8, 1),
            is_read_only: false,
            pointer: std::ptr::null_mut(),
            len_bytes: 0,
        };
        tensor.read()?;
        Ok(tensor)
    }

    fn read(&mut self) -> PyResult<()> {
        let (tensor, flags) = self.managed.tensor()?;
        if !HOST_DEVICES.contains(&tensor.device_type) {
            let device = tensor.device_type;
            return Err(PyTypeError::new_err(format!(
                "the tensor is on a device (DLPack device type {device}); only the processor's memory can be \
                 used"
            )));
        }
        let element = Element::from_dlpack(tensor.type_code, tensor.type_bits, tensor.type_lanes);
        let items = tensor.items().ok_or_else(|| {
            PyBufferError::new_err("the tensor is not contiguous, or its shape makes no sense")
        })?;
        let len_bytes = items.checked_mul(element.size_bytes);
        self.len_bytes =
            len_bytes.ok_or_else(|| PyBufferError::new_err("the tensor's shape makes no sense"))?;
        self.element = element;
        self.is_read_only = flags & FLAG_READ_ONLY != 0;
        self.pointer = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
        Ok(())
    }
}

/// Asks for version 1; a producer that knows no versions refuses the argument, and is asked without.
fn capsule_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let arguments = PyDict::new(py);
    arguments.set_item("max_version", VERSION)?;
    match object.call_method("__dlpack__", (), Some(&arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__"),
        outcome => outcome,
    }
}

impl Managed {
    /// Takes what the capsule holds, and marks it as taken.
    fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        for (name, used) in [(VERSIONED, USED_VERSIONED), (UNVERSIONED, USED_UNVERSIONED)] {
            // SAFETY: any object may be asked, attached to the interpreter; the name is terminated.
            if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } == 0 {
                continue;
            }
            // SAFETY: it is a capsule of that name, as was just asked.
            let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) };
            let held = NonNull::new(pointer).ok_or_else(|| PyErr::fetch(capsule.py()))?;
            // SAFETY: as above; the new name is a constant, which outlives the capsule.
            if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
                return Err(PyErr::fetch(capsule.py()));
            }
            let is_versioned = name == VERSIONED;
            return Ok(if is_versioned {
                Self::Versioned(held.cast())
            } else {
                Self::Unversioned(held.cast())
            });
        }
        Err(PyTypeError::new_err("__dlpack__ returned no capsule of a tensor"))
    }

    /// The tensor, and its flags.
    fn tensor(&self) -> PyResult<(&DlTensor, u64)> {
        match self {
            // SAFETY: a capsule of that name holds this structure, valid until its deleter is called.
            Self::Unversioned(managed) => Ok((unsafe { &managed.as_ref().tensor }, 0)),
            Self::Versioned(managed) => {
                // SAFETY: as above; version and flags lie in front of what other versions may change.
                let managed = unsafe { managed.as_ref() };
                if managed.major != VERSION.0 {
                    let (major, minor) = (managed.major, managed.minor);
                    return Err(PyBufferError::new_err(format!(
                        "the tensor comes by DLPack {major}.{minor}; {}.x is understood",
                        VERSION.0
                    )));
                }
                Ok((&managed.tensor, managed.flags))
            }
        }
    }
}

impl DlTensor {
    /// How many elements it has; none if they do not lie one behind the other.
    fn items(&self) -> Option<usize> {
        let mut items: i64 = 1;
        let dimensions = usize::try_from(self.dimensions).ok()?;
        for dimension in (0..dimensions).rev() {
            // SAFETY: `shape` has so many numbers, by DLPack's contract.
            let length = unsafe { self.shape.add(dimension).read() };
            if !self.strides.is_null() {
                // SAFETY: `strides` has as many, unless it is null.
                let stride = unsafe { self.strides.add(dimension).read() };
                if length > 1 && stride != items {
                    return if self.is_empty(dimensions) { Some(0) } else { None };
                }
            }
            items = items.checked_mul(length).filter(|items| *items >= 0)?;
        }
        usize::try_from(items).ok()
    }

    fn is_empty(&self, dimensions: usize) -> bool {
        // SAFETY: `shape` has so many numbers, by DLPack's contract.
        (0..dimensions).any(|dimension| unsafe { self.shape.add(dimension).read() } == 0)
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // Where the interpreter is gone, so is what the deleter would need.
        Python::try_attach(|_| match self.managed {
            Managed::Unversioned(managed) => {
                // SAFETY: the structure is valid until now, and nothing uses it any more.
                unsafe {
                    if let Some(delete) = managed.as_ref().deleter {
                        delete(managed.as_ptr());
                    }
                }
            }
            Managed::Versioned(managed) => {
                // SAFETY: as above.
                unsafe {
                    if let Some(delete) = managed.as_ref().deleter {
                        delete(managed.as_ptr());
                    }
                }
            }
        });
    }
}
