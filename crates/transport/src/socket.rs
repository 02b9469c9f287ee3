//! What both kinds of socket have in common.

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

/// When the kernel counts the other host of a TCP connection as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProbes {
    /// A silent connection is probed after this long, and as often again; whole seconds.
    pub interval: Duration,
    /// Unanswered probes after which the host is gone.
    pub probes_max: u32,
    /// How long what was sent may stay unacknowledged, if that is bounded: while something is on its
    /// way no probe is sent. A peer that does not read for as long is taken for gone as well.
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

/// Whether an error of `accept` is about one connection that failed before it was accepted, so that
/// the next one should be tried at once.
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

/// Whether an error of `send` or `recv` means that the peer is gone, however that came about.
pub(crate) fn is_closed(error: Errno) -> bool {
    matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED | Errno::NOTCONN)
}

/// A duration as the kernel takes it; what it can't represent is as good as for ever.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Sleeps until `fd` is as `flags` say, or until `deadline`: true or false.
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
