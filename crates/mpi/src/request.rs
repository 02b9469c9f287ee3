//! `tributary_request`: an operation under way.

use std::ffi::{c_char, c_int};

use tributary_client::{CollectiveError, Request};

use crate::message::Room;
use crate::names::{FAILED, GIVEN_UP};

const PENDING: c_int = 0;
const DONE: c_int = 1;

/// What C holds a pointer to.
pub struct CRequest(Request);

impl CRequest {
    pub(crate) fn into_raw(request: Request) -> *mut Self {
        Box::into_raw(Box::new(Self(request)))
    }
}

/// Says how far a request is, and drives it.
///
/// # Safety
/// `request` came from `tributary_start` and was not freed; `message` holds `message_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_test(
    request: *mut CRequest,
    message: *mut c_char,
    message_bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let request = unsafe { &*request };
    match request.0.test() {
        Ok(false) => PENDING,
        Ok(true) => DONE,
        Err(CollectiveError::GivenUp { .. }) => GIVEN_UP,
        Err(error) => {
            // SAFETY: the caller's promise.
            unsafe { Room::new(message, message_bytes) }.write(&error);
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
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(request) });
}

/// Advances every outstanding request of this process.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_progress() {
    tributary_client::progress();
}
