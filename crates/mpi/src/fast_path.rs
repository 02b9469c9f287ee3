//! Blocking collectives with their arguments in registers, for communicators of one host.

use std::ffi::{c_int, c_void};

use tributary_client::{CollectiveError, Communicator, PairNumber};

use crate::communicator::{CCommunicator, Problem};

/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[inline]
unsafe fn run(
    communicator: *const CCommunicator,
    operation: impl FnOnce(&Communicator) -> Result<(), CollectiveError>,
) -> c_int {
    // SAFETY: as the caller of this function promises.
    match unsafe { &*communicator }.joined() {
        Ok(communicator) => match operation(communicator) {
            Ok(()) => 0,
            Err(error) => Problem::Failed(error).tell(),
        },
        Err(problem) => problem.tell(),
    }
}

/// An allreduce.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_allreduce(
    communicator: *const CCommunicator,
    pair: u32,
    elements: u64,
    source: *const c_void,
    target: *mut c_void,
) -> c_int {
    let (pair, source, target) = (PairNumber(pair), source.cast(), target.cast());
    // SAFETY: the header asks for what `Communicator::allreduce` asks for.
    unsafe { run(communicator, |it| it.allreduce(pair, elements, source, target)) }
}

/// A reduction to one rank.
///
/// # Safety
/// As the header says.
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
    // SAFETY: the header asks for what `Communicator::reduce` asks for.
    unsafe { run(communicator, |it| it.reduce(pair, elements, root, source, target)) }
}

/// A broadcast.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_broadcast(
    communicator: *const CCommunicator,
    len_bytes: u64,
    root: u32,
    buffer: *mut c_void,
) -> c_int {
    // SAFETY: the header asks for what `Communicator::broadcast` asks for.
    unsafe { run(communicator, |it| it.broadcast(len_bytes, root, buffer.cast())) }
}

/// A barrier.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_barrier(communicator: *const CCommunicator) -> c_int {
    // SAFETY: the communicator is as the header asks.
    unsafe { run(communicator, |it| it.barrier()) }
}
