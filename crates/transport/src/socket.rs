//! Helpers for Unix and TCP sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::OsError;

/// A stream socket that neither blocks nor survives exec.
pub(crate) fn stream(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}

/// When the kernel takes the other host of a TCP connection for gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProbes {
    /// Silence before the first probe, and the interval between probes; whole seconds.
    pub interval: Duration,
    /// Unanswered probes after which the host is gone.
    pub probes_max: u32,
    /// How long sent data may stay unacknowledged, if that is bounded. The kernel sends no probes
    /// while data are in flight. A peer that does not read for this long is taken for gone as well.
    pub unacknowledged_max: Option<Duration>,
}

impl HostProbes {
    /// Lets the kernel probe the host at the other end of a TCP socket.
    ///
    /// # Errors
    /// If the system refuses an option.
    pub fn watch(&self, socket: impl AsFd) -> Result<(), OsError> {
        Ok(self.set(socket.as_fd())?)
    }

    pub(crate) fn set(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, self.interval)?;
        sockopt::set_tcp_keepintvl(socket, self.interval)?;
        sockopt::set_tcp_keepcnt(socket, self.probes_max)?;
        if let Some(unacknowledged_max) = self.unacknowledged_max {
            let limit_ms = u32::try_from(unacknowledged_max.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(socket, limit_ms)?;
        }
        Ok(())
    }
}

/// Whether an error of `accept` concerns one connection that failed before it was accepted. The
/// caller should try the next one at once.
pub(crate) fn is_lost_connection(error: Errno) -> bool {
    const LOST: [Errno; 10] = [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::PROTO,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::NONET,
        Errno::OPNOTSUPP,
    ];
    LOST.contains(&error)
}

/// Whether an error of `send` or `recv` means that the peer is gone.
pub(crate) fn is_closed(error: Errno) -> bool {
    matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED | Errno::NOTCONN)
}

/// A duration as the kernel takes it. One that it cannot represent becomes its maximum.
#[must_use]
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Sleeps until `fd` is ready for `flags`. False if `deadline` passed first.
pub(crate) fn wait_until(
    fd: BorrowedFd<'_>,
    flags: PollFlags,
    deadline: Instant,
) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), flags)];
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
