//! Blocking collectives with their arguments in registers, for communicators of one host.

use std::ffi::{c_int, c_void};

use tributary_client::{CollectiveError, Communicator, PairNumber};

use crate::communicator::{CCommunicator, Problem};

/// Runs `operation` on a communicator that is set up.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[inline]
unsafe fn run(
    communicator: *const CCommunicator,
    operation: impl FnOnce(&Communicator) -> Result<(), CollectiveError>,
) -> c_int {
    // SAFETY: the contract of this function.
    match unsafe { &*communicator }.communicator_joined() {
        Ok(communicator) => match operation(communicator) {
            Ok(()) => 0,
            Err(error) => Problem::Failed(error).report(),
        },
        Err(problem) => problem.report(),
    }
}

/// An allreduce.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed; the buffers are as
/// `Communicator::allreduce` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_allreduce(
    communicator: *const CCommunicator,
    pair: u32,
    elements: u64,
    source: *const c_void,
    target: *mut c_void,
) -> c_int {
    let (pair, source, target) = (PairNumber(pair), source.cast(), target.cast());
    // SAFETY: the header asks that `communicator` was not freed, and that `source` and `target` hold
    // `elements` of the datatype and nobody else uses them until this returns.
    unsafe { run(communicator, |it| it.allreduce(pair, elements, source, target)) }
}

/// A reduction to one rank.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed; the buffers are as
/// `Communicator::reduce` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_reduce(
    communicator: *const CCommunicator,
    pair: u32,
    elements: u64,
    root: u32,
    source: *const c_void,
    target: *mut c_void,
) -> c_int {
    let (pair, source, target) = (PairNumber(pair), source.cast(), target.cast());
    // SAFETY: the header asks that `communicator` was not freed, and that `source`, and at the root
    // `target`, hold `elements` of the datatype and nobody else uses them until this returns.
    unsafe { run(communicator, |it| it.reduce(pair, elements, root, source, target)) }
}

/// A broadcast.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed; the buffer is as
/// `Communicator::broadcast` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_broadcast(
    communicator: *const CCommunicator,
    len_bytes: u64,
    root: u32,
    buffer: *mut c_void,
) -> c_int {
    // SAFETY: the header asks that `communicator` was not freed, and that `buffer` holds `len_bytes`
    // and nobody else uses it until this returns.
    unsafe { run(communicator, |it| it.broadcast(len_bytes, root, buffer.cast())) }
}

/// A barrier.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_barrier(communicator: *const CCommunicator) -> c_int {
    // SAFETY: the header asks that `communicator` was not freed.
    unsafe { run(communicator, |it| it.barrier()) }
}
