//! The service of a host: has the programs at its interfaces, and gives rings to processes that have no privileges.
//!
//! A process shows by a socket which address is its own, so none gets what goes to another. It maps its own rings alone. When its
//! connection closes, nothing more is delivered to it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_protocol};
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, accept_with, bind, connect, getsockname,
    ipproto, listen, shutdown, socket_with,
};

use super::address::ServiceAddress;
use super::admission::Admission;
use super::destination::Destination;
use super::messages::{self, Request, encode_reply};
use super::origin::Hook;
use super::program::{Program, Receiver};
use super::ring::RINGS_MAX;
use crate::error::OpenError;
use crate::interface::find;
use crate::socket::{Peer, network_of, peer_of};

/// Connections that wait to be taken.
const BACKLOG: i32 = 64;
/// Connections at once. Each is a thread.
const CONNECTIONS_MAX: usize = 256;
/// Addresses that one process has at one interface: its rings, each with some multicasts.
const TARGETS_PER_RECEIVER_MAX: usize = 4 * RINGS_MAX;

/// What an operator decides.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Where the service takes connections, of any user of the host.
    pub address: ServiceAddress,
    /// Where its programs sit.
    pub hook: Hook,
    /// At which interfaces; at any if there are none.
    pub interfaces: Vec<String>,
    /// Connections that one user may have at once. A process has one for each interface.
    pub per_user_max: usize,
}

/// What happens at a service.
#[derive(Debug)]
pub enum Event<'a> {
    /// A process has rings.
    Opened {
        /// Its number.
        process: i32,
        /// Its user's number.
        user: u32,
        /// The interface.
        interface: &'a str,
    },
    /// A process has rings no more.
    Closed {
        /// Its number.
        process: i32,
    },
    /// A process did not get what it asked for.
    Refused {
        /// Its number.
        process: i32,
        /// Its user's number.
        user: u32,
        /// Why.
        reason: &'a str,
    },
}

/// Why a service can't start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Another one is there.
    #[error("another service takes connections at {0}")]
    InUse(ServiceAddress),
    /// The system does not allow it.
    #[error("can't take connections at {address}: {problem}")]
    Address {
        /// Where.
        address: ServiceAddress,
        /// What it says.
        problem: io::Error,
    },
}

/// A service that takes connections.
pub struct Service {
    listener: OwnedFd,
    /// That of the service, and of the addresses that it delivers for.
    network: u64,
    options: ServiceOptions,
    programs: Mutex<Vec<Loaded>>,
    /// Connections by user.
    users: Mutex<BTreeMap<u32, usize>>,
}

/// The program at an interface while a process has rings there.
struct Loaded {
    interface: u32,
    program: Program,
}

impl Service {
    /// Takes connections. No program is loaded before a process asks for rings.
    ///
    /// # Errors
    /// If another service is there, or the system refuses.
    pub fn bind(options: ServiceOptions) -> Result<Self, ServiceError> {
        let listener = listen_at(&options.address)?;
        let network = network_of(&listener).map_err(|problem| ServiceError::Address {
            address: options.address.clone(),
            problem,
        })?;
        let (programs, users) = (Mutex::default(), Mutex::default());
        Ok(Self { listener, network, options, programs, users })
    }

    /// Serves until there is something to read at `stop`, and tells what happens. Then all datagrams go to the network stack again.
    ///
    /// # Errors
    /// If the system can't wait.
    pub fn serve(&self, stop: impl AsFd, tell: &(dyn Fn(Event<'_>) + Sync)) -> io::Result<()> {
        let connections = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            let mut next = 0_u64;
            let ended = loop {
                let connection = match self.next_connection(stop.as_fd()) {
                    Ok(Some(connection)) => connection,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                };
                let Some((peer, admitted)) = self.admit(&connection, tell) else { continue };
                // A copy by which the end of the service ends the connection.
                let Ok(copy) = connection.try_clone() else { continue };
                let number = next;
                next += 1;
                lock(&connections).insert(number, copy);
                let connections = &connections;
                let serve = move || {
                    self.serve_one(&connection, peer, tell);
                    lock(connections).remove(&number);
                    drop(admitted);
                };
                // What can't be served is closed.
                if thread::Builder::new().spawn_scoped(scope, serve).is_err() {
                    lock(connections).remove(&number);
                }
            };
            for connection in lock(&connections).values() {
                let _ = shutdown(connection, Shutdown::Both);
            }
            ended
        })
    }

    /// Waits for a connection. None if the service is to end.
    fn next_connection(&self, stop: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
        loop {
            let mut awaited = [
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            match poll(&mut awaited, None) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            if !awaited[0].revents().is_empty() {
                return Ok(None);
            }
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(connection) => return Ok(Some(connection)),
                // A process that has gone, or descriptors that are taken for a moment.
                Err(_) => thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
    }

    /// Counts a connection of a user, and greets it. None if the user has as many as one may. A service speaks first: a refusal would be
    /// lost if the connection was closed with a request in it.
    fn admit(
        &self,
        connection: &OwnedFd,
        tell: &(dyn Fn(Event<'_>) + Sync),
    ) -> Option<(Peer, Admitted<'_>)> {
        let peer = peer_of(connection).ok()?;
        match self.count(peer.user) {
            Ok(admitted) => {
                messages::send(connection, &encode_reply(Ok(())), None).ok()?;
                Some((peer, admitted))
            }
            Err(reason) => {
                refuse(peer, connection, &reason, tell).ok()?;
                None
            }
        }
    }

    fn count(&self, user: u32) -> Result<Admitted<'_>, String> {
        let mut users = lock(&self.users);
        let its = users.get(&user).copied().unwrap_or_default();
        if its >= self.options.per_user_max {
            return Err(format!(
                "user {user} has {its} connections, as many as one may (--per-user)"
            ));
        }
        if users.values().sum::<usize>() >= CONNECTIONS_MAX {
            return Err(format!("the service has {CONNECTIONS_MAX} connections, its most"));
        }
        users.insert(user, its + 1);
        Ok(Admitted { service: self, user })
    }

    fn serve_one(&self, connection: &OwnedFd, peer: Peer, tell: &(dyn Fn(Event<'_>) + Sync)) {
        let Peer { process, user } = peer;
        let mut client = Client { service: self, at: None, sockets: BTreeMap::new() };
        while let Ok(Some((message, beside))) = messages::receive(connection) {
            let answered = Request::decode(&message)
                .map_err(|problem| problem.to_string())
                .and_then(|request| client.carry_out(request, beside));
            let sent = match answered {
                Ok(Answer::Done) => messages::send(connection, &encode_reply(Ok(())), None),
                Ok(Answer::Opened { interface, rings }) => {
                    tell(Event::Opened { process, user, interface: &interface });
                    messages::send(connection, &encode_reply(Ok(())), Some(rings.as_fd()))
                }
                Err(reason) => refuse(peer, connection, &reason, tell),
            };
            if sent.is_err() {
                break;
            }
        }
        if client.at.is_some() {
            tell(Event::Closed { process });
        }
    }

    /// Makes rings at the interface that has an address.
    fn open(&self, at: IpAddr) -> Result<(String, Place, OwnedFd), OpenError> {
        let (name, interface) = find(at)?;
        let allowed = &self.options.interfaces;
        if !allowed.is_empty() && !allowed.contains(&name) {
            let problem = "the service does not serve it (--interface)".to_owned();
            return Err(OpenError::Refused { interface: name, problem });
        }
        let mut programs = lock(&self.programs);
        let is_there = programs.iter().any(|it| it.interface == interface);
        if !is_there {
            let program = Program::load(&name, self.options.hook)?;
            programs.push(Loaded { interface, program });
        }
        let loaded = programs.iter_mut().find(|it| it.interface == interface);
        let added = loaded.expect("it is there now").program.add_receiver();
        programs.retain(|it| it.program.has_receivers());
        let (receiver, rings) = added?;
        Ok((name, Place { interface, receiver }, rings))
    }

    /// Does something with the program at an interface that a process has rings at.
    fn with_program<T>(&self, interface: u32, act: impl FnOnce(&mut Program) -> T) -> T {
        let mut programs = lock(&self.programs);
        let loaded = programs.iter_mut().find(|it| it.interface == interface);
        let outcome = act(&mut loaded.expect("it stays while it has a receiver").program);
        programs.retain(|it| it.program.has_receivers());
        outcome
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(path) = self.options.address.path() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Tells a process that it does not get what it asked for.
fn refuse(
    peer: Peer,
    connection: &OwnedFd,
    reason: &str,
    tell: &(dyn Fn(Event<'_>) + Sync),
) -> io::Result<()> {
    tell(Event::Refused { process: peer.process, user: peer.user, reason });
    messages::send(connection, &encode_reply(Err(reason)), None)
}

/// A connection that is counted until this is dropped.
struct Admitted<'a> {
    service: &'a Service,
    user: u32,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut users = lock(&self.service.users);
        if let Some(its) = users.get_mut(&self.user) {
            *its -= 1;
            if *its == 0 {
                users.remove(&self.user);
            }
        }
    }
}

/// Where a process has its rings.
#[derive(Clone, Copy)]
struct Place {
    interface: u32,
    receiver: Receiver,
}

/// A process at the other end of a connection.
struct Client<'a> {
    service: &'a Service,
    at: Option<Place>,
    /// By address, the socket that is bound to it, and what is delivered: nobody else is bound there meanwhile.
    sockets: BTreeMap<Destination, (OwnedFd, Admission)>,
}

enum Answer {
    Done,
    Opened { interface: String, rings: OwnedFd },
}

impl Client<'_> {
    fn carry_out(&mut self, request: Request, beside: Option<OwnedFd>) -> Result<Answer, String> {
        let outcome = match (request, self.at, beside) {
            (Request::Open { at }, None, None) => {
                return self
                    .service
                    .open(at)
                    .map(|(interface, place, rings)| {
                        self.at = Some(place);
                        Answer::Opened { interface, rings }
                    })
                    .map_err(|error| error.to_string());
            }
            (Request::Enter { admission, rings }, Some(place), Some(socket)) if rings != 0 => {
                self.enter(place, socket, admission, rings)
            }
            (Request::Keep { target, rings }, Some(place), None) => self.keep(place, target, rings),
            _ => Err("the request is out of place".to_owned()),
        };
        outcome.map(|()| Answer::Done)
    }

    fn enter(
        &mut self,
        place: Place,
        socket: OwnedFd,
        admission: Admission,
        rings: u32,
    ) -> Result<(), String> {
        let target = self.address_of(place, &socket)?;
        let is_new = !self.sockets.contains_key(&target);
        if is_new && self.sockets.len() >= TARGETS_PER_RECEIVER_MAX {
            return Err(format!("a process has at most {TARGETS_PER_RECEIVER_MAX} addresses"));
        }
        self.service
            .with_program(place.interface, |program| {
                program.enter(place.receiver, target, admission, rings)
            })
            .map_err(|error| error.to_string())?;
        self.sockets.insert(target, (socket, admission));
        Ok(())
    }

    fn keep(&mut self, place: Place, target: Destination, rings: u32) -> Result<(), String> {
        let Some((_, admission)) = self.sockets.get(&target) else {
            return Err(format!("{} was not entered", SocketAddr::from(target)));
        };
        let admission = *admission;
        let kept = self.service.with_program(place.interface, |program| {
            if rings == 0 {
                program.leave(place.receiver, target);
                return Ok(());
            }
            program.enter(place.receiver, target, admission, rings)
        });
        if rings == 0 {
            self.sockets.remove(&target);
        }
        kept.map_err(|error| error.to_string())
    }

    /// The address that a socket is bound to, if it can only be its owner's: one of the interface, or a multicast one, which
    /// datagrams come from for those alone who know the admission.
    fn address_of(&self, place: Place, socket: &OwnedFd) -> Result<Destination, String> {
        let not = |what: &str| format!("the socket is not {what}");
        let is_ip = matches!(socket_domain(socket), Ok(AddressFamily::INET | AddressFamily::INET6));
        if !is_ip || socket_protocol(socket) != Ok(Some(ipproto::UDP)) {
            return Err(not("one of UDP"));
        }
        if network_of(socket).ok() != Some(self.service.network) {
            return Err(not("in the network namespace of the service"));
        }
        let bound = getsockname(socket).map_err(|error| error.to_string())?;
        let bound = SocketAddr::try_from(bound).map_err(|error| error.to_string())?;
        // A dual-stack socket may be bound to an address of IPv4.
        let address = bound.ip().to_canonical();
        let is_its = address.is_multicast()
            || find(address).is_ok_and(|(_, index)| index == place.interface);
        if bound.port() == 0 || !is_its {
            return Err(not("bound to an address of the interface, or to one of multicast"));
        }
        Ok(bound.into())
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if let Some(Place { interface, receiver }) = self.at {
            self.service.with_program(interface, |program| program.remove_receiver(receiver));
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nobody panics between two changes that belong together.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes connections at an address. A folder that is not there is made, and a path that a service has left behind is taken over.
fn listen_at(address: &ServiceAddress) -> Result<OwnedFd, ServiceError> {
    let failed = |problem: io::Error| ServiceError::Address { address: address.clone(), problem };
    let open =
        || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let listener = open().map_err(|error| failed(error.into()))?;
    let name = address.to_socket_address().map_err(failed)?;
    if let Some(folder) = address.path().and_then(|path| Path::new(path).parent()) {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let bound = match (bind(&listener, &name), address.path()) {
        (Err(Errno::ADDRINUSE), Some(path)) => {
            let probe = open().map_err(|error| failed(error.into()))?;
            if connect(&probe, &name) != Err(Errno::CONNREFUSED) {
                return Err(ServiceError::InUse(address.clone()));
            }
            fs::remove_file(path).map_err(failed)?;
            bind(&listener, &name)
        }
        (Err(Errno::ADDRINUSE), None) => return Err(ServiceError::InUse(address.clone())),
        (bound, _) => bound,
    };
    bound.map_err(|error| failed(error.into()))?;
    if let Some(path) = address.path() {
        // Every user may connect; what each may have is counted.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(failed)?;
    }
    listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
