//! `tributary_request`: an operation that was started.

use std::cell::Cell;
use std::ffi::c_int;

use tributary_client::{CollectiveError, Request};
use tributary_shm_collectives::waiting::{NAP_MAX, Policy, Waiter};

use crate::combiner::Kept;
use crate::message;
use crate::names::{FAILED, GIVEN_UP};

const PENDING: c_int = 0;
pub(crate) const DONE: c_int = 1;

/// C holds a pointer to it.
pub struct CRequest {
    request: Request,
    combining: Kept,
}

impl CRequest {
    pub(crate) fn new(request: Request, combining: Kept) -> Self {
        Self { request, combining }
    }

    pub(crate) fn into_raw(request: Request, combining: Kept) -> *mut Self {
        Box::into_raw(Box::new(Self::new(request, combining)))
    }
}

/// Drives a request and says whether it is done.
///
/// # Safety
/// `request` came from `tributary_start` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_test(request: *mut CRequest) -> c_int {
    // SAFETY: `request` came from `tributary_start` and was not freed: the header's rule on pointers.
    let request = unsafe { &*request };
    outcome_code(request.request.test(), &request.combining)
}

/// What C gets to know of an operation: whether it is over, and how it has ended.
pub(crate) fn outcome_code(outcome: Result<bool, CollectiveError>, combining: &Kept) -> c_int {
    match outcome {
        Ok(false) => PENDING,
        Ok(true) => match combining.outcome() {
            Ok(()) => DONE,
            Err(error) => {
                message::keep(&error);
                FAILED
            }
        },
        Err(CollectiveError::GivenUp { .. }) => GIVEN_UP,
        Err(error) => {
            message::keep(&error);
            FAILED
        }
    }
}

/// Frees a request that is done or has failed.
///
/// # Safety
/// `request` came from `tributary_start` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_request_free(request: *mut CRequest) {
    // SAFETY: `request` is the box of `tributary_start`; the header forbids every later use of it.
    drop(unsafe { Box::from_raw(request) });
}

/// Pauses for a moment in a wait for `request` and for what only the caller can poll. `is_first` is
/// not 0 in the first call of a wait. `request` is null if there is none to drive.
///
/// # Safety
/// `request` is null, or came from `tributary_start` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_rest(request: *const CRequest, is_first: c_int) {
    thread_local! {
        /// The state of the wait that this thread is in.
        static WAITER: Cell<Option<Waiter>> = const { Cell::new(None) };
    }
    let kept = if is_first != 0 { None } else { WAITER.take() };
    // SAFETY: the header asks for null, or a request of `tributary_start` that was not freed.
    let waiter = if let Some(CRequest { request, .. }) = unsafe { request.as_ref() } {
        let mut waiter = kept.unwrap_or_else(|| request.waiter());
        request.rest(&mut waiter);
        waiter
    } else {
        let mut waiter = kept.unwrap_or_else(|| Waiter::with_naps(Policy::Sleep, NAP_MAX));
        waiter.pause(std::thread::sleep);
        waiter
    };
    WAITER.set(Some(waiter));
}
