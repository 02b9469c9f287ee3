//! Communicators.

use std::ffi::c_int;
use std::sync::Arc;

use super::{dereference, place};
use crate::abi::CommInitSpec;
use crate::communicator::{COMMUNICATORS, Group, announce, find};
use crate::context;
use crate::failure::{Failure, status};
use crate::handles::Handle;
use crate::log::Level;

/// Sets a communicator up.
///
/// # Safety
/// The pointers are as [`super`] says. The callbacks of the context may be called with the spec's during this
/// call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sharp_coll_comm_init(
    context: Handle,
    spec: *const CommInitSpec,
    comm: *mut Handle,
) -> c_int {
    // SAFETY: the contract of this function.
    let created = unsafe { create(context, spec, comm) };
    let hides = || context::find(context).is_ok_and(|context| context.hides_errors);
    match created {
        Ok(()) => 0,
        Err(failure) if hides() => failure.report(Level::Debug),
        Err(failure) => failure.report(Level::Error),
    }
}

/// # Safety
/// As [`sharp_coll_comm_init`].
unsafe fn create(
    handle: Handle,
    spec: *const CommInitSpec,
    comm: *mut Handle,
) -> Result<(), Failure> {
    // SAFETY: the rule on pointers.
    let comm = unsafe { place(comm, "comm") }?;
    *comm = std::ptr::null_mut();
    // SAFETY: the rule on pointers.
    let spec = unsafe { dereference(spec, "spec") }?;
    let context = context::find(handle)?;
    // SAFETY: as the caller promises.
    let group = Arc::new(unsafe { Group::create(&context, spec) }?);
    announce(&group);
    *comm = COMMUNICATORS.insert(group);
    context.note_communicator(*comm);
    Ok(())
}

/// Ends a communicator. Operations under way go on.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_comm_destroy(comm: Handle) -> c_int {
    let ended = find(comm).map(|group| group.context.forget_communicator(comm));
    COMMUNICATORS.remove(comm);
    status(ended)
}
