//! Requests.

use std::ffi::c_int;

use crate::failure::status;
use crate::handles::Handle;
use crate::request;

/// Goes on with an operation: 1 if it is over, else 0, and 0 for ever if it failed.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_req_test(handle: Handle) -> c_int {
    request::test(handle)
}

/// Waits until an operation is over. The request is freed, unless it failed.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_req_wait(handle: Handle) -> c_int {
    status(request::wait(handle))
}

/// Frees a request. An operation under way goes on.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_req_free(handle: Handle) -> c_int {
    status(request::free(handle))
}
