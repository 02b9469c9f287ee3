//! A process's connection to the host's service. While it is open, the process has its rings.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, recv, socket_with};
use rustix::process::geteuid;
use tributary_inheritance::Uninherited;

use crate::admission::Admission;
use crate::destination::Destination;
use crate::error::OpenError;
use crate::messages::{self, Reply, Request};
use crate::queue::{Queue, QueueSize};
use crate::service_address::ServiceAddress;
use crate::socket::peer_of;

/// How long a service may take for an answer. It loads a program in some milliseconds; an emulated processor beside other work took
/// six seconds.
const ANSWER_TAKES_MAX: Duration = Duration::from_secs(15);

/// Finds out whether a service takes this process's connections.
///
/// # Errors
/// If there is none, or it refuses.
pub fn ask_service(service: &ServiceAddress) -> Result<(), OpenError> {
    Connection::to(service).map(drop)
}

/// A connection. What it has the service deliver ends with it.
pub struct Connection {
    socket: Uninherited<OwnedFd>,
    service: ServiceAddress,
    /// An answer did not come. If it still does, it is none to what is asked next.
    is_lost: bool,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
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

    /// Asks for sockets of AF_XDP at the interface that has an address, one for each queue.
    pub(crate) fn open_sockets(
        service: &ServiceAddress,
        at: IpAddr,
    ) -> Result<(Self, Vec<Queue>), OpenError> {
        let mut connection = Self::to(service)?;
        let (count, _) = connection.ask(Request::OpenSockets { at }, None)?;
        let mut queues = Vec::new();
        for number in 0..count {
            let (_, descriptors) = connection.hear_answer(|_| Ok(()))?;
            let Ok([socket, memory]) = <[OwnedFd; 2]>::try_from(descriptors) else {
                return Err(connection.refusal("it gave no socket".to_owned()));
            };
            let size = QueueSize::of(number.into(), count.into());
            let queue = Queue::new(socket, &memory, size);
            queues.push(queue.map_err(|problem| connection.refusal(problem.to_string()))?);
        }
        Ok((connection, queues))
    }

    /// Has what goes to the address of a socket steered to the sockets of AF_XDP.
    pub(crate) fn steer(&mut self, socket: BorrowedFd<'_>) -> Result<(), OpenError> {
        self.ask(Request::Steer, Some(socket)).map(drop)
    }

    /// Has what goes to an address left to the network stack again.
    pub(crate) fn leave(&mut self, target: Destination) -> Result<(), OpenError> {
        self.ask(Request::Leave { target }, None).map(drop)
    }

    /// Asks for rings at the interface that has an address, and gets their memory.
    ///
    /// # Errors
    /// If there is no service, or it refuses.
    pub fn open(service: &ServiceAddress, at: IpAddr) -> Result<(Self, OwnedFd), OpenError> {
        let mut connection = Self::to(service)?;
        let (_, mut descriptors) = connection.ask(Request::Open { at }, None)?;
        let rings = descriptors.pop();
        let rings = rings.ok_or_else(|| connection.refusal("it gave no memory".to_owned()))?;
        Ok((connection, rings))
    }

    /// Has what goes to the address of a socket delivered into these rings.
    ///
    /// # Errors
    /// If the service refuses.
    pub fn enter(
        &mut self,
        socket: BorrowedFd<'_>,
        admission: Admission,
        rings: u32,
    ) -> Result<(), OpenError> {
        self.ask(Request::Enter { admission, rings }, Some(socket)).map(drop)
    }

    /// Has what goes to an address delivered into fewer rings than so far, or into none.
    ///
    /// # Errors
    /// If the service refuses.
    pub fn keep(&mut self, target: Destination, rings: u32) -> Result<(), OpenError> {
        self.ask(Request::Keep { target, rings }, None).map(drop)
    }

    /// Whether the service is still there.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // There is nothing to read but the end.
        let read = recv(&self.socket, &mut [0_u8; 1][..], flags);
        !self.is_lost && read.is_err_and(|error| error == Errno::AGAIN)
    }

    /// The number of answers that follow, and the descriptors beside this one.
    fn ask(
        &mut self,
        request: Request,
        beside: Option<BorrowedFd<'_>>,
    ) -> Result<(u8, Vec<OwnedFd>), OpenError> {
        self.hear_answer(|socket| messages::send(socket, &request.encode(), beside.as_slice()))
    }

    /// What a service says to what `ask` sends.
    fn hear_answer(
        &mut self,
        ask: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> Result<(u8, Vec<OwnedFd>), OpenError> {
        let answered = if self.is_lost {
            Err(io::ErrorKind::NotConnected.into())
        } else {
            ask(&self.socket)
                .and_then(|()| messages::receive(&self.socket))
                .and_then(|it| it.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
        };
        self.is_lost = answered.is_err();
        let (answer, descriptors) =
            answered.map_err(|problem: io::Error| self.refusal(problem.to_string()))?;
        match Reply::decode(&answer) {
            Ok(Reply::Done { sockets }) => Ok((sockets, descriptors)),
            Ok(Reply::Refused { reason }) => Err(self.refusal(reason)),
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
