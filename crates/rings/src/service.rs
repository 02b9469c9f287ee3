//! The service itself: takes connections, counts them, and carries out what processes ask for.
//!
//! A process maps its own rings alone. When its connection closes, nothing more is delivered to it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, thread};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_protocol};
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, accept_with, bind, connect, getsockname,
    ipproto, listen, shutdown, socket_with,
};
use rustix::process::geteuid;
use tributary_af_xdp::messages::{self, Reply, Request};
use tributary_af_xdp::{
    Admission, Destination, Peer, RINGS_MAX, ServiceAddress, find_interface, network_of, peer_of,
};

use crate::delivering::{Program, Receiver};
use crate::error::ServeError;
use crate::hook::Hook;
use crate::sockets::OpenedSocket;
use crate::steering::Steering;

/// Connections that wait to be taken.
const BACKLOG: i32 = 64;
/// Connections at once. Each is a thread.
const CONNECTIONS_MAX: usize = 256;
/// Addresses that one process has at one interface: its rings, each with some multicasts.
const TARGETS_PER_RECEIVER_MAX: usize = 4 * RINGS_MAX;

/// What a process is told that asks for what it can't have now.
const OUT_OF_PLACE: &str = "the request is out of place";

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
    /// Users who may have sockets of AF_XDP, beside root and the service's own user: by one they can send any packet.
    pub socket_users: Vec<u32>,
}

/// What happens at a service.
#[derive(Debug)]
pub enum Event<'a> {
    /// A process has rings, or sockets of AF_XDP.
    Opened {
        /// Its number.
        process: i32,
        /// Its user's number.
        user: u32,
        /// The interface.
        interface: &'a str,
    },
    /// A process has them no more.
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

    /// Serves on a thread of its own while `body` runs, whatever comes of it.
    ///
    /// # Errors
    /// If the system can't wait, or gives no descriptor.
    pub fn serve_while<T>(
        &self,
        tell: &(dyn Fn(Event<'_>) + Sync),
        body: impl FnOnce() -> T,
    ) -> io::Result<T> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        thread::scope(|scope| {
            let serving = scope.spawn(|| self.serve(&stop, tell));
            let outcome = catch_unwind(AssertUnwindSafe(body));
            // The counter of an event that nobody has written to has room.
            let _ = rustix::io::write(&stop, &1_u64.to_ne_bytes());
            let served = serving.join().unwrap_or_else(|panic| resume_unwind(panic));
            let outcome = outcome.unwrap_or_else(|panic| resume_unwind(panic));
            served.map(|()| outcome)
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
                messages::send(connection, &Reply::DONE.encode(), &[]).ok()?;
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
        let mut client = Client { service: self, user, has: None, sockets: BTreeMap::new() };
        while let Ok(Some((message, beside))) = messages::receive(connection) {
            let answered = Request::decode(&message)
                .map_err(|problem| problem.to_string())
                .and_then(|request| client.carry_out(request, beside));
            let sent = match answered {
                Ok(Answer::Done) => messages::send(connection, &Reply::DONE.encode(), &[]),
                Ok(Answer::Rings { interface, memory }) => {
                    tell(Event::Opened { process, user, interface: &interface });
                    messages::send(connection, &Reply::DONE.encode(), &[memory.as_fd()])
                }
                Ok(Answer::Sockets { interface, opened }) => {
                    tell(Event::Opened { process, user, interface: &interface });
                    send_sockets(connection, &opened)
                }
                Err(reason) => refuse(peer, connection, &reason, tell),
            };
            if sent.is_err() {
                break;
            }
        }
        if client.has.is_some() {
            tell(Event::Closed { process });
        }
    }

    /// The name and the number of the interface that has an address, if it is served.
    fn interface_with(&self, at: IpAddr) -> Result<(String, u32), ServeError> {
        let (name, index) = find_interface(at)?;
        let allowed = &self.options.interfaces;
        if !allowed.is_empty() && !allowed.contains(&name) {
            let problem = "the service does not serve it (--interface)".to_owned();
            return Err(ServeError::Refused { interface: name, problem });
        }
        Ok((name, index))
    }

    /// Makes rings at the interface that has an address.
    fn open_rings(&self, at: IpAddr) -> Result<(String, Place, OwnedFd), ServeError> {
        let (name, interface) = self.interface_with(at)?;
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

    /// Opens sockets of AF_XDP at the interface that has an address, for a user.
    fn open_sockets(
        &self,
        at: IpAddr,
        user: u32,
    ) -> Result<(String, Sockets, Vec<OpenedSocket>), ServeError> {
        let may =
            user == 0 || user == geteuid().as_raw() || self.options.socket_users.contains(&user);
        if !may {
            return Err(ServeError::NotOffered(format!(
                "user {user} gets no sockets of AF_XDP, by which one can send any packet (--af-xdp)"
            )));
        }
        let (name, interface) = self.interface_with(at)?;
        let (steering, opened) = Steering::attach(&name, interface, self.options.hook)?;
        Ok((name, Sockets { interface, steering: Box::new(steering) }, opened))
    }

    /// The address that a socket is bound to, if it can only be its owner's: one of the interface, or a multicast one, which
    /// datagrams come from for those alone who know the admission.
    fn address_of(&self, interface: u32, socket: &OwnedFd) -> Result<Destination, String> {
        let not = |what: &str| format!("the socket is not {what}");
        let is_ip = matches!(socket_domain(socket), Ok(AddressFamily::INET | AddressFamily::INET6));
        if !is_ip || socket_protocol(socket) != Ok(Some(ipproto::UDP)) {
            return Err(not("one of UDP"));
        }
        if network_of(socket).ok() != Some(self.network) {
            return Err(not("in the network namespace of the service"));
        }
        let bound = getsockname(socket).map_err(|error| error.to_string())?;
        let bound = SocketAddr::try_from(bound).map_err(|error| error.to_string())?;
        // A dual-stack socket may be bound to an address of IPv4.
        let address = bound.ip().to_canonical();
        let is_its = address.is_multicast()
            || find_interface(address).is_ok_and(|(_, index)| index == interface);
        if bound.port() == 0 || !is_its {
            return Err(not("bound to an address of the interface, or to one of multicast"));
        }
        Ok(bound.into())
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
    messages::send(connection, &Reply::Refused { reason: reason.to_owned() }.encode(), &[])
}

/// Hands sockets over, each in a message of its own.
fn send_sockets(connection: &OwnedFd, opened: &[OpenedSocket]) -> io::Result<()> {
    let sockets = u8::try_from(opened.len()).expect("an interface has 64 at most");
    messages::send(connection, &Reply::Done { sockets }.encode(), &[])?;
    opened.iter().try_for_each(|OpenedSocket { socket, memory }| {
        messages::send(connection, &Reply::DONE.encode(), &[socket.as_fd(), memory.as_fd()])
    })
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

/// The program that steers to the sockets of AF_XDP that a process has.
struct Sockets {
    interface: u32,
    steering: Box<Steering>,
}

/// What a process has.
enum Has {
    Rings(Place),
    Sockets(Sockets),
}

/// A process at the other end of a connection.
struct Client<'a> {
    service: &'a Service,
    user: u32,
    has: Option<Has>,
    /// By address, the socket that is bound to it, and what is delivered to rings: nobody else is bound there meanwhile.
    sockets: BTreeMap<Destination, (OwnedFd, Option<Admission>)>,
}

enum Answer {
    Done,
    Rings { interface: String, memory: OwnedFd },
    Sockets { interface: String, opened: Vec<OpenedSocket> },
}

impl Client<'_> {
    fn carry_out(&mut self, request: Request, mut beside: Vec<OwnedFd>) -> Result<Answer, String> {
        let (socket, has_more) = (beside.pop(), !beside.is_empty());
        if has_more {
            return Err(OUT_OF_PLACE.to_owned());
        }
        match (request, &mut self.has, socket) {
            (Request::Open { at }, None, None) => self.open_rings(at),
            (Request::OpenSockets { at }, None, None) => self.open_sockets(at),
            (Request::Enter { admission, rings }, Some(Has::Rings(place)), Some(socket))
                if rings != 0 =>
            {
                let place = *place;
                self.enter(place, socket, admission, rings)
            }
            (Request::Keep { target, rings }, Some(Has::Rings(place)), None) => {
                let place = *place;
                self.keep(place, target, rings)
            }
            (Request::Steer, Some(Has::Sockets(_)), Some(socket)) => self.steer(socket),
            (Request::Leave { target }, Some(Has::Sockets(sockets)), None) => {
                sockets.steering.leave(target);
                match self.sockets.remove(&target) {
                    Some(_) => Ok(Answer::Done),
                    None => Err(not_entered(target)),
                }
            }
            _ => Err(OUT_OF_PLACE.to_owned()),
        }
    }

    fn open_rings(&mut self, at: IpAddr) -> Result<Answer, String> {
        let (interface, place, memory) =
            self.service.open_rings(at).map_err(|error| error.to_string())?;
        self.has = Some(Has::Rings(place));
        Ok(Answer::Rings { interface, memory })
    }

    fn open_sockets(&mut self, at: IpAddr) -> Result<Answer, String> {
        let (interface, sockets, opened) =
            self.service.open_sockets(at, self.user).map_err(|error| error.to_string())?;
        self.has = Some(Has::Sockets(sockets));
        Ok(Answer::Sockets { interface, opened })
    }

    fn enter(
        &mut self,
        place: Place,
        socket: OwnedFd,
        admission: Admission,
        rings: u32,
    ) -> Result<Answer, String> {
        let target = self.service.address_of(place.interface, &socket)?;
        check_room(&self.sockets, target)?;
        self.service
            .with_program(place.interface, |program| {
                program.enter(place.receiver, target, admission, rings)
            })
            .map_err(|error| error.to_string())?;
        self.sockets.insert(target, (socket, Some(admission)));
        Ok(Answer::Done)
    }

    fn keep(&mut self, place: Place, target: Destination, rings: u32) -> Result<Answer, String> {
        let Some((_, Some(admission))) = self.sockets.get(&target) else {
            return Err(not_entered(target));
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
        kept.map(|()| Answer::Done).map_err(|error| error.to_string())
    }

    fn steer(&mut self, socket: OwnedFd) -> Result<Answer, String> {
        let Some(Has::Sockets(Sockets { interface, steering })) = &mut self.has else {
            return Err(OUT_OF_PLACE.to_owned());
        };
        let target = self.service.address_of(*interface, &socket)?;
        check_room(&self.sockets, target)?;
        steering.steer(target).map_err(|error| error.to_string())?;
        self.sockets.insert(target, (socket, None));
        Ok(Answer::Done)
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if let Some(Has::Rings(Place { interface, receiver })) = self.has {
            self.service.with_program(interface, |program| program.remove_receiver(receiver));
        }
    }
}

/// Whether a process may have one more address.
fn check_room<T>(sockets: &BTreeMap<Destination, T>, target: Destination) -> Result<(), String> {
    if sockets.contains_key(&target) || sockets.len() < TARGETS_PER_RECEIVER_MAX {
        return Ok(());
    }
    Err(format!("a process has at most {TARGETS_PER_RECEIVER_MAX} addresses"))
}

fn not_entered(target: Destination) -> String {
    format!("{} was not entered", SocketAddr::from(target))
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
