//! The call that rustix has no safe form of.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

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
