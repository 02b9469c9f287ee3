//! Which network a socket is in.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A number that no other network namespace has, until the system starts anew (Linux 5.14).
pub(crate) fn network_of(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut len_bytes = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the length that it is told to the number.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len_bytes,
        )
    };
    if outcome == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}
