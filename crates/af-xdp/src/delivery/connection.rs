//! A process's connection to the host's service. While it is open, the process has its rings.

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with};
use rustix::process::geteuid;
use tributary_inheritance::Uninherited;

use super::address::ServiceAddress;
use super::admission::Admission;
use super::destination::Destination;
use super::messages::{self, Request, decode_reply};
use crate::error::OpenError;
use crate::socket::peer_of;

/// How long a service may take for an answer. It loads a program in some milliseconds.
const ANSWER_TAKES_MAX: Duration = Duration::from_secs(5);

/// Finds out whether a service takes this process's connections.
///
/// # Errors
/// If there is none, or it refuses.
pub fn ask_service(service: &ServiceAddress) -> Result<(), OpenError> {
    Connection::to(service).map(drop)
}

pub(super) struct Connection {
    socket: Uninherited<OwnedFd>,
    service: ServiceAddress,
    /// An answer did not come. If it still does, it is none to what is asked next.
    is_lost: bool,
}

impl Connection {
    /// Connects, and hears whether the service takes the connection.
    fn to(service: &ServiceAddress) -> Result<Self, OpenError> {
        let no_service = |problem| OpenError::NoService { service: service.to_string(), problem };
        let socket = connect_to(service).map_err(no_service)?;
        let mut connection =
            Self { socket: Uninherited::new(socket), service: service.clone(), is_lost: false };
        connection.hear_answer(|_| Ok(()))?;
        Ok(connection)
    }

    /// Asks for rings at the interface that has an address, and gets their memory.
    pub(super) fn open(service: &ServiceAddress, at: IpAddr) -> Result<(Self, OwnedFd), OpenError> {
        let mut connection = Self::to(service)?;
        let rings = connection.ask(Request::Open { at }, None)?;
        let rings = rings.ok_or_else(|| connection.refusal("it gave no memory".to_owned()))?;
        Ok((connection, rings))
    }

    /// Has what goes to the address of a socket delivered into these rings.
    pub(super) fn enter(
        &mut self,
        socket: BorrowedFd<'_>,
        admission: Admission,
        rings: u32,
    ) -> Result<(), OpenError> {
        self.ask(Request::Enter { admission, rings }, Some(socket)).map(drop)
    }

    /// Has what goes to an address delivered into fewer rings than so far, or into none.
    pub(super) fn keep(&mut self, target: Destination, rings: u32) -> Result<(), OpenError> {
        self.ask(Request::Keep { target, rings }, None).map(drop)
    }

    /// Whether the service is still there.
    pub(super) fn is_open(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // There is nothing to read but the end.
        let read = recv(&self.socket, &mut [0_u8; 1][..], flags);
        !self.is_lost && read.is_err_and(|error| error == Errno::AGAIN)
    }

    #[cfg(test)]
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn ask(
        &mut self,
        request: Request,
        beside: Option<BorrowedFd<'_>>,
    ) -> Result<Option<OwnedFd>, OpenError> {
        self.hear_answer(|socket| messages::send(socket, &request.encode(), beside))
    }

    /// What a service says to what `ask` sends.
    fn hear_answer(
        &mut self,
        ask: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> Result<Option<OwnedFd>, OpenError> {
        let answered = if self.is_lost {
            Err(io::ErrorKind::NotConnected.into())
        } else {
            ask(&self.socket)
                .and_then(|()| messages::receive(&self.socket))
                .and_then(|it| it.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
        };
        self.is_lost = answered.is_err();
        let (answer, descriptor) =
            answered.map_err(|problem: io::Error| self.refusal(problem.to_string()))?;
        match decode_reply(&answer) {
            Ok(Ok(())) => Ok(descriptor),
            Ok(Err(reason)) => Err(self.refusal(reason)),
            Err(problem) => Err(self.refusal(problem.to_string())),
        }
    }

    fn refusal(&self, problem: String) -> OpenError {
        OpenError::Service { service: self.service.to_string(), problem }
    }
}

/// Connects to a service, and believes only one of root, or of this process's user: anybody can listen at a name, and who delivers
/// learns what datagrams have to show.
fn connect_to(service: &ServiceAddress) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, direction, Some(ANSWER_TAKES_MAX))?;
    }
    connect(&socket, &service.to_socket_address()?)?;
    let owner = peer_of(&socket)?.user;
    if owner == 0 || owner == geteuid().as_raw() {
        Ok(socket)
    } else {
        let problem = format!("it is user {owner}'s, and neither root's nor yours");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
    }
}
