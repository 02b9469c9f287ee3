//! What the kernel tells of a socket, and no library asks.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// The process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its number; 0 where it is none that this process sees.
    pub process: i32,
    /// Its user's number.
    pub user: u32,
}

/// The process that connected, or called `listen`.
///
/// # Errors
/// If the system does not say.
pub fn peer_of(socket: impl AsFd) -> io::Result<Peer> {
    // SAFETY: the kernel writes this type for this option.
    let it: libc::ucred = unsafe { option(socket, libc::SO_PEERCRED)? };
    Ok(Peer { process: it.pid, user: it.uid })
}

/// The number of a socket's network namespace, which no other has until the system starts anew (Linux 5.14).
///
/// # Errors
/// If the system does not say.
pub fn network_of(socket: impl AsFd) -> io::Result<u64> {
    // SAFETY: the kernel writes a number of 64 bits for this option.
    unsafe { option(socket, libc::SO_NETNS_COOKIE) }
}

/// An option of a socket.
///
/// # Safety
/// The kernel writes a whole `T` for it.
unsafe fn option<T>(socket: impl AsFd, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len_bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the length that it is told.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len_bytes,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as the caller says.
    Ok(unsafe { value.assume_init() })
}
