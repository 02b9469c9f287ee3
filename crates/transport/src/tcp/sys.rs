//! System calls for which rustix has no safe function.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

use crate::option;

/// `TCP_RTO_MAX_MS` of Linux's tcp.h: the maximum retransmission timeout in milliseconds, at least 1000. Since
/// Linux 6.15.
const RTO_MAX_MS: c_int = 44;
/// `TCP_RTO_MIN_US` of Linux's tcp.h: the minimum retransmission timeout in microseconds. Since
/// Linux 6.15.
const RTO_MIN_US: c_int = 45;
/// `TCP_DELACK_MAX_US`: the maximum delay of an acknowledgement. Since Linux 6.15.
const DELAYED_ACK_MAX_US: c_int = 46;

/// `SIOCOUTQ` of tcp(7), another name of `TIOCOUTQ`.
const UNACKNOWLEDGED: Opcode = libc::TIOCOUTQ as Opcode;

/// Bytes in a connected TCP socket's send queue: not sent, or not acknowledged by the peer. Zero
/// for any other socket.
pub(super) fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> usize {
    // SAFETY: the request writes one `int`, which is what the getter makes room for.
    let request = unsafe { Getter::<UNACKNOWLEDGED, c_int>::new() };
    // SAFETY: the request only reads the state of the socket, a borrowed and so open descriptor.
    let bytes = unsafe { ioctl(socket, request) };
    bytes.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
}

/// Segments that a TCP socket has sent again so far: `tcpi_total_retrans` of Linux's tcp.h. Zero for any other socket.
pub(super) fn retransmissions(socket: BorrowedFd<'_>) -> u32 {
    // SAFETY: the structure consists of numbers, of which any bytes are valid.
    let info = unsafe { option::get::<libc::tcp_info>(socket, libc::IPPROTO_TCP, libc::TCP_INFO) };
    info.map_or(0, |info| info.tcpi_total_retrans)
}

/// The shortest round trip of a TCP socket in the last minutes: `tcpi_min_rtt` of Linux's tcp.h, which it knows from the first packets
/// on. None for any other socket.
pub(super) fn round_trip(socket: BorrowedFd<'_>) -> Option<Duration> {
    // SAFETY: as above.
    let info = unsafe { option::get::<libc::tcp_info>(socket, libc::IPPROTO_TCP, libc::TCP_INFO) };
    let is_known = |micros: &u32| !matches!(*micros, 0 | u32::MAX);
    let micros = info.ok().map(|info| info.tcpi_min_rtt).filter(is_known)?;
    Some(Duration::from_micros(micros.into()))
}

/// Sets the maximum retransmission timeout, which otherwise doubles up to 120 s while nothing is acknowledged: behind
/// an outage a link would stay silent for as long again. A kernel that can't (before Linux 6.15) keeps its own.
pub(super) fn set_retransmit_within(socket: BorrowedFd<'_>, most: Duration) -> Result<(), Errno> {
    let most_ms = c_int::try_from(most.as_millis()).unwrap_or(c_int::MAX);
    set(socket, RTO_MAX_MS, most_ms).map(drop)
}

/// Sets the minimum retransmission timeout and the maximum delay of acknowledgements to `least`. A
/// kernel that can't (before Linux 6.15, or with a clock of 100 ticks a second) keeps its 200 ms,
/// unless the route says otherwise (`rto_min` of ip-route(8)).
pub(super) fn set_retransmit_after_min(
    socket: BorrowedFd<'_>,
    least: Duration,
) -> Result<(), Errno> {
    let least_us = c_int::try_from(least.as_micros()).unwrap_or(c_int::MAX);
    if set(socket, RTO_MIN_US, least_us)? {
        set(socket, DELAYED_ACK_MAX_US, least_us)?;
    }
    Ok(())
}

/// Sets an option of TCP. False if the kernel does not know the option or refuses the value, which
/// must be at least two of its clock ticks.
fn set(socket: BorrowedFd<'_>, name: c_int, value: c_int) -> Result<bool, Errno> {
    // SAFETY: the value of every option of TCP that is set here is an int.
    match unsafe { option::set(socket, libc::IPPROTO_TCP, name, &value) } {
        Ok(()) => Ok(true),
        Err(Errno::NOPROTOOPT | Errno::INVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
