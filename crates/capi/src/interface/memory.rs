//! Registrations.

use std::ffi::{c_int, c_void};

use super::{dereference, place};
use crate::abi::{REG_FIELD_DMABUF_FD, RegParams};
use crate::context::find;
use crate::failure::{Failure, status};
use crate::handles::Handle;
use crate::memory::{deregister, register};

/// Registers memory.
///
/// # Safety
/// `mr` is as [`super`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sharp_coll_reg_mr(
    context: Handle,
    buffer: *mut c_void,
    length: usize,
    mr: *mut Handle,
) -> c_int {
    // SAFETY: the contract of this function.
    status(unsafe { register_for(context, buffer, length, None, mr) })
}

/// Registers memory that may be that of a device.
///
/// # Safety
/// The pointers are as [`super`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sharp_coll_reg_mr_v2(
    context: Handle,
    buffer: *mut c_void,
    length: usize,
    params: *const RegParams,
    mr: *mut Handle,
) -> c_int {
    // SAFETY: the contract of this function.
    let registered = unsafe {
        let params = dereference(params, "params");
        params.and_then(|params| register_for(context, buffer, length, Some(params), mr))
    };
    status(registered)
}

/// # Safety
/// `mr` is as [`super`] says.
unsafe fn register_for(
    context: Handle,
    buffer: *mut c_void,
    length: usize,
    params: Option<&RegParams>,
    mr: *mut Handle,
) -> Result<(), Failure> {
    // SAFETY: the rule on pointers.
    let mr = unsafe { place(mr, "mr") }?;
    *mr = std::ptr::null_mut();
    find(context)?;
    if let Some(params) = params
        && params.field_mask & REG_FIELD_DMABUF_FD != 0
        && params.dmabuf_fd >= 0
    {
        return Err(Failure::not_supported(format!(
            "DMA-BUF {} is memory of a device: give host memory",
            params.dmabuf_fd
        )));
    }
    *mr = register(buffer, length)?;
    Ok(())
}

/// Ends a registration. Clients do so late: the context may be gone.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_dereg_mr(_context: Handle, mr: Handle) -> c_int {
    status(deregister(mr))
}
