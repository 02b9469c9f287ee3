//! `tributary_prepared`: an operation that is started many times.

use std::ffi::c_int;
use std::ptr;

use tributary_client::{CollectiveError, Prepared};

use crate::combiner::Kept;
use crate::communicator::{CCommunicator, Problem};
use crate::names::COperation;
use crate::request::{CRequest, DONE, outcome_code};

/// C holds a pointer to it.
pub struct CPrepared {
    prepared: Prepared,
    /// What `tributary_prepared_request` gives out.
    request: CRequest,
    combining: Kept,
}

/// Prepares one operation.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed. `operation` is valid during
/// this call, and so are its cuts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_prepare(
    communicator: *mut CCommunicator,
    operation: *const COperation,
) -> *mut CPrepared {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed, and
    // `operation` is valid during this call: the header's rule on pointers.
    let (communicator, operation) = unsafe { (&*communicator, &*operation) };
    let combining = Kept::of(operation.combining());
    let problem =
        match (communicator.communicator_joined(), operation.operation(combining.combiner())) {
            (Ok(communicator), Ok(operation)) => {
                // SAFETY: the header asks for cuts that are valid until the prepared operation is freed.
                match unsafe { communicator.prepare(operation) } {
                    Ok(prepared) => {
                        let request = CRequest::new(prepared.request(), combining.clone());
                        return Box::into_raw(Box::new(CPrepared { prepared, request, combining }));
                    }
                    Err(error) => Problem::Failed(error),
                }
            }
            (Err(problem), _) => problem,
            (_, Err(error)) => Problem::Unknown(error),
        };
    problem.report();
    ptr::null_mut()
}

/// Starts it once more. Returns 0, as MPI does: so a caller that has nothing to add can jump here.
///
/// # Safety
/// `prepared` came from `tributary_prepare` and was not freed; its last start is over. Its buffers are as
/// `Communicator::start` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_prepared_start(prepared: *const CPrepared) -> c_int {
    // SAFETY: `prepared` was not freed: the header's rule on pointers.
    let prepared = unsafe { &*prepared };
    // SAFETY: the header asks that the last start is over, and that the buffers and cuts are valid, and
    // used by nobody else, until this one is.
    unsafe { prepared.prepared.start() };
    0
}

/// Drives it.
///
/// # Safety
/// `prepared` came from `tributary_prepare` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_prepared_test(prepared: *const CPrepared) -> c_int {
    // SAFETY: `prepared` was not freed: the header's rule on pointers.
    let prepared = unsafe { &*prepared };
    code(prepared.prepared.poll(), &prepared.combining)
}

/// Waits for it, if the wait is one for ranks of this host alone.
///
/// # Safety
/// `prepared` came from `tributary_prepare` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_prepared_wait(prepared: *const CPrepared) -> c_int {
    // SAFETY: `prepared` was not freed: the header's rule on pointers.
    let prepared = unsafe { &*prepared };
    let outcome = prepared.prepared.wait_shortly();
    if matches!(outcome, Some(Ok(()))) && prepared.combining.is_none() {
        return DONE;
    }
    code(outcome, &prepared.combining)
}

/// The request of the start that is under way.
///
/// # Safety
/// `prepared` came from `tributary_prepare` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_prepared_request(prepared: *mut CPrepared) -> *mut CRequest {
    // SAFETY: `prepared` was not freed: the header's rule on pointers.
    unsafe { &*prepared }.prepared.hand_over();
    // SAFETY: as above. Nobody writes to the request, whatever the pointer allows.
    unsafe { &raw mut (*prepared).request }
}

/// Frees it.
///
/// # Safety
/// `prepared` came from `tributary_prepare`, its last start is over, and nothing uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_prepared_free(prepared: *mut CPrepared) {
    // SAFETY: `prepared` is the box of `tributary_prepare`; the header forbids every later use of it.
    drop(unsafe { Box::from_raw(prepared) });
}

/// In no line of its callers: a wait for a few bytes has no need of it.
#[cold]
#[inline(never)]
fn code(outcome: Option<Result<(), CollectiveError>>, combining: &Kept) -> c_int {
    outcome_code(outcome.map_or(Ok(false), |ended| ended.map(|()| true)), combining)
}
