//! Collectives, blocking and not.

use std::ffi::c_int;

use super::{dereference, place};
use crate::abi::{BcastSpec, GatherSpec, ReduceSpec};
use crate::collectives;
use crate::communicator::{Group, find};
use crate::failure::{Failure, status};
use crate::handles::Handle;
use crate::request;
use crate::work::Work;

/// Runs what `work` asks for.
///
/// # Safety
/// `spec` is as [`super`] says. The buffers that it names are valid, and nobody else uses them, during this
/// call.
unsafe fn run<S>(
    comm: Handle,
    spec: *const S,
    work: impl FnOnce(&Group, &S) -> Result<Work, Failure>,
) -> c_int {
    let outcome = find(comm).and_then(|group| {
        // SAFETY: the rule on pointers.
        let work = work(&group, unsafe { dereference(spec, "spec") }?)?;
        // SAFETY: as the caller promises.
        unsafe { work.run(&group) }
    });
    status(outcome)
}

/// Starts what `work` asks for.
///
/// # Safety
/// The pointers are as [`super`] says. The buffers that the spec names are valid, and nobody else uses them,
/// until the request is over.
unsafe fn start<S>(
    comm: Handle,
    spec: *const S,
    handle: *mut Handle,
    work: impl FnOnce(&Group, &S) -> Result<Work, Failure>,
) -> c_int {
    // SAFETY: the rule on pointers.
    let started = unsafe { place(handle, "handle") }.and_then(|handle| {
        *handle = std::ptr::null_mut();
        let group = find(comm)?;
        // SAFETY: the rule on pointers.
        let work = work(&group, unsafe { dereference(spec, "spec") }?)?;
        // SAFETY: as the caller promises.
        *handle = unsafe { request::start(group, work) }?;
        Ok(())
    });
    status(started)
}

/// The two functions of a collective: `name`, and `name` with `_nb`.
macro_rules! collective {
    ($what:literal, $run:ident, $start:ident, $spec:ty, $work:expr) => {
        #[doc = concat!($what, ", to its end.")]
        ///
        /// # Safety
        /// The spec is as [`super`] says. The buffers that it names are valid, and nobody else uses them,
        /// during this call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $run(comm: Handle, spec: *const $spec) -> c_int {
            let work = $work;
            // SAFETY: the contract of this function.
            unsafe { run(comm, spec, work) }
        }

        #[doc = concat!($what, ", started.")]
        ///
        /// # Safety
        /// The pointers are as [`super`] says. The buffers that the spec names are valid, and nobody else
        /// uses them, until the request is over.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $start(
            comm: Handle,
            spec: *const $spec,
            handle: *mut Handle,
        ) -> c_int {
            let work = $work;
            // SAFETY: the contract of this function.
            unsafe { start(comm, spec, handle, work) }
        }
    };
}

collective!(
    "An allreduce",
    sharp_coll_do_allreduce,
    sharp_coll_do_allreduce_nb,
    ReduceSpec,
    collectives::allreduce
);
collective!(
    "A reduction to one rank",
    sharp_coll_do_reduce,
    sharp_coll_do_reduce_nb,
    ReduceSpec,
    collectives::reduce
);
collective!(
    "A reduce-scatter of a window",
    sharp_coll_do_reduce_scatter,
    sharp_coll_do_reduce_scatter_nb,
    ReduceSpec,
    collectives::reduce_scatter
);
collective!(
    "A broadcast",
    sharp_coll_do_bcast,
    sharp_coll_do_bcast_nb,
    BcastSpec,
    collectives::bcast
);
collective!(
    "An allgather of a window",
    sharp_coll_do_allgather,
    sharp_coll_do_allgather_nb,
    GatherSpec,
    // SAFETY: the buffers are the caller's, who gives them away for the operation.
    |group: &Group, spec: &GatherSpec| unsafe { collectives::allgather(group, spec) }
);

/// A barrier, to its end.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_do_barrier(comm: Handle) -> c_int {
    let outcome = find(comm).and_then(|group| {
        // SAFETY: a barrier has no buffers.
        unsafe { collectives::barrier().run(&group) }
    });
    status(outcome)
}

/// What has no spec is not looked at.
const NO_SPEC: *const () = std::ptr::NonNull::dangling().as_ptr();

/// A barrier, started.
///
/// # Safety
/// `handle` is as [`super`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sharp_coll_do_barrier_nb(comm: Handle, handle: *mut Handle) -> c_int {
    // SAFETY: the contract of this function; nothing of size 0 is read, and a barrier has no buffers.
    unsafe { start(comm, NO_SPEC, handle, |_, ()| Ok(collectives::barrier())) }
}
