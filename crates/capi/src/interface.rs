//! The functions of the header.
//!
//! All share these rules on pointers, which the header has for C. A pointer to a spec, or to where a result
//! goes, is null or valid during the call; null is refused. A handle may have any value.

mod collectives;
mod communicator;
mod context;
mod memory;
mod request;

pub use collectives::*;
pub use communicator::*;
pub use context::*;
pub use memory::*;
pub use request::*;

use crate::failure::Failure;

/// What a pointer points to.
///
/// # Safety
/// The pointer is null, or valid as long as the result is used.
unsafe fn dereference<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// Where a result goes.
///
/// # Safety
/// As [`dereference`]; nobody else uses it meanwhile.
unsafe fn place<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}
