//! `tributary_express_*`: short collectives of one host, with their arguments in registers.

use std::ffi::{c_int, c_void};

use tributary_client::{Express, PairNumber, Sent};

use crate::communicator::CCommunicator;
use crate::names::{EXPRESS_DONE, EXPRESS_REFUSED};

/// # Safety
/// `communicator` came from `tributary_communicator_new`.
#[inline]
unsafe fn send(
    communicator: *const CCommunicator,
    operation: impl FnOnce(Express<'_>) -> Sent,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { &*communicator }.joined().map(|communicator| operation(communicator.express())) {
        Ok(Sent::Done) => EXPRESS_DONE,
        Ok(Sent::Refused) | Err(_) => EXPRESS_REFUSED,
    }
}

/// An allreduce.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_express_allreduce(
    communicator: *const CCommunicator,
    pair: u32,
    elements: u64,
    source: *const c_void,
    target: *mut c_void,
) -> c_int {
    let pair = PairNumber(pair);
    // SAFETY: the caller's promise, in both.
    unsafe {
        send(communicator, |mut express| {
            express.allreduce(pair, elements, source.cast(), target.cast())
        })
    }
}

/// A reduction to one rank.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_express_reduce(
    communicator: *const CCommunicator,
    pair: u32,
    elements: u64,
    root: u32,
    source: *const c_void,
    target: *mut c_void,
) -> c_int {
    let pair = PairNumber(pair);
    // SAFETY: the caller's promise, in both.
    unsafe {
        send(communicator, |mut express| {
            express.reduce(pair, elements, root, source.cast(), target.cast())
        })
    }
}

/// A broadcast.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_express_broadcast(
    communicator: *const CCommunicator,
    len_bytes: u64,
    root: u32,
    buffer: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise, in both.
    unsafe { send(communicator, |mut express| express.broadcast(len_bytes, root, buffer.cast())) }
}

/// A barrier.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_express_barrier(communicator: *const CCommunicator) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { send(communicator, |mut express| express.barrier()) }
}
