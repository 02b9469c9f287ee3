//! The connecting side.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, connect, sockopt};

use super::congestion::send_at_once;
use super::{TcpLink, TcpOptions};
use crate::ConnectError;
use crate::socket::{stream, wait_until};

/// Connects to a [`TcpAcceptor`](super::TcpAcceptor), waiting at most `timeout`.
///
/// # Errors
/// If nobody answers in time, or the system refuses.
pub fn connect_tcp(
    address: SocketAddr,
    options: TcpOptions,
    timeout: Duration,
) -> Result<TcpLink, ConnectError> {
    let deadline = Instant::now() + timeout;
    let link = connect_tcp_start(address, options)?;
    if !wait_until(link.socket(), PollFlags::OUT, deadline).map_err(os("poll"))? {
        return Err(ConnectError::TimedOut { timeout });
    }
    match sockopt::socket_error(link.socket()).map_err(os("getsockopt"))? {
        Ok(()) => Ok(link),
        Err(error) => Err(os("connect")(error)),
    }
}

/// Begins to connect, without waiting.
///
/// The link can be used at once: until the peer has answered it is `Full` and has nothing to
/// receive, and its descriptor must be watched for writability. If the attempt fails, `receive` and
/// `send` return the error. The kernel gives up only after minutes; a caller with less patience
/// needs a timer.
///
/// # Errors
/// If the attempt can't begin.
pub fn connect_tcp_start(
    address: SocketAddr,
    options: TcpOptions,
) -> Result<TcpLink, ConnectError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = stream(family).map_err(os("socket"))?;
    send_at_once(socket.as_fd()).map_err(os("setsockopt"))?;
    let link = TcpLink::new(socket, options).map_err(os("setsockopt"))?;
    match connect(link.socket(), &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(link),
        Err(error) => Err(os("connect")(error)),
    }
}

fn os(call: &'static str) -> impl Fn(Errno) -> ConnectError {
    move |error| ConnectError::Os { call, error: error.into() }
}
