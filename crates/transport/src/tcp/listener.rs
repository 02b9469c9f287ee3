//! The accepting side.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use tributary_inheritance::Uninherited;

use super::congestion::send_at_once;
use super::{TcpLink, TcpOptions};
use crate::socket::is_lost_connection;
use crate::{AcceptError, ListenError, Listener};

/// Accepts links over TCP.
///
/// A connector identifies itself in its first frame, so there is no handshake and no half-open
/// link. The owner of a link decides how long it may stay silent.
pub struct TcpAcceptor {
    socket: Uninherited<TcpListener>,
    options: TcpOptions,
}

impl TcpAcceptor {
    /// Listens at `address`; port 0 lets the system choose.
    ///
    /// # Errors
    /// If somebody listens there, or the system refuses.
    pub fn bind(address: SocketAddr, options: TcpOptions) -> Result<Self, ListenError> {
        let socket = TcpListener::bind(address).map_err(|error| listen_error("bind", &error))?;
        socket.set_nonblocking(true).map_err(|error| listen_error("fcntl", &error))?;
        let outcome = send_at_once(socket.as_fd());
        outcome.map_err(|error| ListenError::Os { call: "setsockopt", error: error.into() })?;
        Ok(Self { socket: Uninherited::new(socket), options })
    }

    /// The address it listens at, with the port that the system chose.
    ///
    /// # Errors
    /// If the system doesn't say.
    pub fn address(&self) -> Result<SocketAddr, ListenError> {
        self.socket.local_addr().map_err(|error| listen_error("getsockname", &error))
    }
}

fn listen_error(call: &'static str, error: &io::Error) -> ListenError {
    match Errno::from_io_error(error) {
        Some(Errno::ADDRINUSE) => ListenError::InUse,
        errno => ListenError::Os { call, error: errno.unwrap_or(Errno::IO).into() },
    }
}

impl AsFd for TcpAcceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Listener for TcpAcceptor {
    type Link = TcpLink;

    fn accept(&mut self, _now: Instant) -> Result<Option<TcpLink>, AcceptError> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.socket, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) if is_lost_connection(error) => continue,
                Err(error) => return Err(AcceptError::Os { call: "accept", error: error.into() }),
            };
            match TcpLink::new(socket, self.options) {
                Ok(link) => return Ok(Some(link)),
                // The connection broke before its options were set.
                Err(Errno::INVAL) => continue,
                Err(error) => {
                    return Err(AcceptError::Os { call: "setsockopt", error: error.into() });
                }
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
