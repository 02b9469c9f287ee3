//! Socket options for which rustix has no safe function: reading and setting one.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// Sets an option.
///
/// # Safety
/// The kernel takes a `T` for this option's value, and only reads what it points to, before it returns.
pub(crate) unsafe fn set<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> Result<(), Errno> {
    // SAFETY: the address and length of `value` are given, which is what the kernel expects, by this function's
    // contract.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

/// Reads an option. What the kernel does not write is zero.
///
/// # Safety
/// Any bytes are a valid `T`.
pub(crate) unsafe fn get<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len_bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes that many bytes at most to `value`, which lives until the call has returned.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len_bytes,
        )
    };
    if outcome != 0 {
        return Err(last_error());
    }
    // SAFETY: it was all zeros but for what the kernel has written, and any bytes are a valid value, by this
    // function's contract.
    Ok(unsafe { value.assume_init() })
}

/// The error of the system call that has just failed.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
