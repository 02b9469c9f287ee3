//! The calls that rustix has no safe form of.

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `TCP_RTO_MIN_US` of Linux's tcp.h: how soon a segment may be taken for lost by its age, in
/// microseconds. Since Linux 6.15.
const RTO_MIN_US: c_int = 45;
/// `TCP_DELACK_MAX_US`: how long an acknowledgement may wait for company. Since Linux 6.15.
const DELAYED_ACK_MAX_US: c_int = 46;

/// `SIOCOUTQ` of tcp(7), which is `TIOCOUTQ` by another name.
const UNCONFIRMED: Opcode = libc::TIOCOUTQ as Opcode;

/// What a connected TCP socket's send queue holds: bytes not sent, or not confirmed by the peer. None
/// for any other socket.
pub(super) fn unconfirmed_bytes(socket: BorrowedFd<'_>) -> usize {
    // SAFETY: the request writes one `int`, which is what the getter makes room for.
    let request = unsafe { Getter::<UNCONFIRMED, c_int>::new() };
    // SAFETY: the request only reads the state of the socket, a borrowed and so open descriptor.
    let bytes = unsafe { ioctl(socket, request) };
    bytes.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
}

/// Lets the kernel send again what has not been acknowledged for `least`, or for as long as round trips
/// suggest if that is longer, and acknowledge as soon. A kernel that can't (before Linux 6.15, or with
/// a clock of 100 ticks a second) waits 200 ms, unless the route says otherwise (`rto_min` of
/// ip-route(8)).
pub(super) fn send_again_after(socket: BorrowedFd<'_>, least: Duration) -> Result<(), Errno> {
    let least_us = c_int::try_from(least.as_micros()).unwrap_or(c_int::MAX);
    if set(socket, RTO_MIN_US, least_us)? {
        set(socket, DELAYED_ACK_MAX_US, least_us)?;
    }
    Ok(())
}

/// Sets an option of TCP; false if the kernel does not know it, or takes no such value: it counts in
/// ticks, of which it wants two.
fn set(socket: BorrowedFd<'_>, option: c_int, value: c_int) -> Result<bool, Errno> {
    // SAFETY: the kernel reads one `int`, which lives until the call has returned.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if outcome == 0 {
        return Ok(true);
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(error) if ![Errno::NOPROTOOPT, Errno::INVAL].contains(&error) => Err(error),
        _ => Ok(false),
    }
}
