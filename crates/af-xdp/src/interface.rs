//! A network interface as one process has it: its queues, and the ports that share them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use if_addrs::get_if_addrs;

use crate::connection::Connection;
use crate::doorbell::Doorbell;
use crate::error::OpenError;
use crate::headers::{self, Arrived, Route};
use crate::queue::{Packet, Queue};
use crate::service_address::ServiceAddress;

/// Packets that wait for one port, at most, while others poll.
const HELD_PER_PORT_MAX: usize = 256;
/// Packets that there is room for at first.
const HELD_AT_FIRST: usize = 16;

/// An interface, shared by all ports of this process that are there.
pub(crate) struct Interface {
    key: Key,
    shared: Mutex<Shared>,
}

/// Tells interfaces apart, also those of different network namespaces, and of a process and its child.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    process: u32,
    namespace: u64,
    index: u32,
    service: ServiceAddress,
}

/// What the ports of an interface share.
pub(crate) struct Shared {
    /// To the service, whose program steers datagrams here while this is open.
    connection: Connection,
    queues: Vec<Queue>,
    ports: Vec<Option<Reception>>,
}

/// What waits for one port.
struct Reception {
    target: SocketAddrV4,
    /// The packets, and their queues.
    packets: VecDeque<(usize, Packet)>,
    /// Rung when another port has taken a packet for this one out of a queue while its owner slept.
    doorbell: Arc<Doorbell>,
    is_asleep: bool,
}

/// A port's number at its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortId(usize);

impl Interface {
    /// The interface that has an address, opened by a service if this process does not have it yet. It stays open until the process
    /// or the service ends: who loses its tree takes a place in another a moment later, and a program that is loaded anew takes
    /// milliseconds.
    pub(crate) fn with_address(
        address: Ipv4Addr,
        service: &ServiceAddress,
    ) -> Result<Arc<Self>, OpenError> {
        static OPEN: Mutex<Vec<Arc<Interface>>> = Mutex::new(Vec::new());
        let (_, index) = find(address.into())?;
        let (process, namespace) = (process::id(), Namespace::open()?.number);
        let key = Key { process, namespace, index, service: service.clone() };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of a parent stay: their locks may be held by threads that are not here.
        open.retain(|it| it.key.process != process || it.lock().connection.is_open());
        if let Some(known) = open.iter().find(|it| it.key == key) {
            return Ok(Arc::clone(known));
        }
        let (connection, queues) = Connection::open_sockets(service, address.into())?;
        let shared = Mutex::new(Shared { connection, queues, ports: Vec::new() });
        let opened = Arc::new(Self { key, shared });
        open.push(Arc::clone(&opened));
        Ok(opened)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nobody panics between two changes that belong together.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Has what goes to the address of a socket steered here.
    pub(crate) fn enter(
        &mut self,
        target: SocketAddrV4,
        socket: BorrowedFd<'_>,
        doorbell: Arc<Doorbell>,
    ) -> Result<PortId, OpenError> {
        self.connection.steer(socket)?;
        let packets = VecDeque::with_capacity(HELD_AT_FIRST);
        let reception = Some(Reception { target, packets, doorbell, is_asleep: false });
        Ok(match self.ports.iter().position(Option::is_none) {
            Some(free) => {
                self.ports[free] = reception;
                PortId(free)
            }
            None => {
                self.ports.push(reception);
                PortId(self.ports.len() - 1)
            }
        })
    }

    /// Leaves a port's datagrams to the network stack again.
    pub(crate) fn leave(&mut self, port: PortId) {
        let Some(reception) = self.ports[port.0].take() else { return };
        // What is still steered here has no port, and is dropped; the service leaves it to the network stack with its last word.
        let _ = self.connection.leave(SocketAddr::from(reception.target).into());
        for (queue, packet) in reception.packets {
            self.queues[queue].give_back(packet);
        }
    }

    /// The next datagram to a port, copied to the start of `buffer`: its length, its source, and the way back.
    pub(crate) fn receive(
        &mut self,
        port: PortId,
        buffer: &mut [u8],
    ) -> Option<(usize, SocketAddrV4, Route)> {
        loop {
            let Some((queue, packet)) = self.next_packet(port) else {
                if !self.take_arrived(port) {
                    return None;
                }
                continue;
            };
            let queue = &mut self.queues[queue];
            let copied = headers::read(queue.bytes(&packet)).and_then(
                |Arrived { source, route_back, payload, .. }| {
                    buffer.get_mut(..payload.len())?.copy_from_slice(payload);
                    Some((payload.len(), source, route_back))
                },
            );
            queue.give_back(packet);
            queue.refill();
            if copied.is_some() {
                return copied;
            }
        }
    }

    /// Whether a port's owner may sleep until its doorbell rings or a queue has something. If so, the doorbell
    /// rings from now on.
    pub(crate) fn may_sleep(&mut self, port: PortId) -> bool {
        self.take_arrived(port);
        let Some(reception) = &mut self.ports[port.0] else { return true };
        reception.is_asleep = reception.packets.is_empty();
        reception.is_asleep
    }

    pub(crate) fn wake(&mut self, port: PortId) {
        if let Some(reception) = &mut self.ports[port.0] {
            reception.is_asleep = false;
        }
    }

    /// The queue that sends.
    pub(crate) fn sender(&mut self) -> &mut Queue {
        &mut self.queues[0]
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(Queue::as_fd)
    }

    fn next_packet(&mut self, port: PortId) -> Option<(usize, Packet)> {
        self.ports[port.0].as_mut()?.packets.pop_front()
    }

    /// Deals what has arrived at the queues to the ports, until there is something for one of them; whether there is.
    /// What has no port, or is more than its port or all ports may hold, is lost, but nothing of the asking one's.
    fn take_arrived(&mut self, port: PortId) -> bool {
        for index in 0..self.queues.len() {
            let mut has_come = false;
            while let Some(packet) = self.queues[index].receive() {
                has_come = true;
                self.deal(index, packet, port);
                if self.ports[port.0].as_ref().is_some_and(|it| !it.packets.is_empty()) {
                    break;
                }
            }
            if has_come {
                self.queues[index].refill();
            }
            if self.ports[port.0].as_ref().is_some_and(|it| !it.packets.is_empty()) {
                return true;
            }
        }
        false
    }

    fn deal(&mut self, queue: usize, packet: Packet, asking: PortId) {
        let target = headers::target(self.queues[queue].bytes(&packet));
        let may_hold = self.queues[queue].may_hold_more();
        let mut ports = self.ports.iter_mut().enumerate();
        let port = ports.find_map(|(number, port)| {
            let port = port.as_mut().filter(|port| Some(port.target) == target)?;
            let is_asking = PortId(number) == asking;
            let has_room = port.packets.len() < HELD_PER_PORT_MAX && may_hold;
            (is_asking || has_room).then_some(port)
        });
        match port {
            Some(port) => {
                port.packets.push_back((queue, packet));
                if port.is_asleep {
                    port.doorbell.ring();
                }
            }
            None => self.queues[queue].give_back(packet),
        }
    }
}

/// The name and the index of the interface that has an address.
///
/// # Errors
/// If none has it, or the system does not say.
pub fn find(address: IpAddr) -> Result<(String, u32), OpenError> {
    let has_address = |it: &if_addrs::Interface| it.ip() == address;
    let all = get_if_addrs().map_err(host("the network interfaces"))?;
    let found = all.into_iter().find(has_address).ok_or(OpenError::NoInterface(address))?;
    let index = found.index.ok_or(OpenError::NoInterface(address))?;
    Ok((found.name, index))
}

/// This thread's network namespace, which no other gets the number of as long as this is open.
pub(crate) struct Namespace {
    pub(crate) number: u64,
    _file: File,
}

impl Namespace {
    pub(crate) fn open() -> Result<Self, OpenError> {
        let asked = File::open("/proc/thread-self/ns/net");
        asked
            .and_then(|file| Ok(Self { number: file.metadata()?.ino(), _file: file }))
            .map_err(host("the network namespace"))
    }
}

pub(crate) fn host(what: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |problem| OpenError::Host { what, problem }
}
