//! A network interface as one process has it: its queues, and the ports that share them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use if_addrs::get_if_addrs;
use xdp::Packet;
use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab};

use crate::Mode;
use crate::doorbell::Doorbell;
use crate::error::{OpenError, PORTS_NEED};
use crate::headers::{self, Arrived, Route};
use crate::queue::{Queue, Share};
use crate::steering::{QUEUES_MAX, Steering};

/// Packets taken from a queue at once.
const BATCH: usize = 16;
/// Packets that wait for one port, at most, while others poll.
const HELD_PER_PORT_MAX: usize = 256;

/// An interface, shared by all ports of this process that are there.
pub(crate) struct Interface {
    name: String,
    key: Key,
    shared: Mutex<Shared>,
}

/// Tells interfaces apart, also those of different network namespaces.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    namespace: u64,
    index: u32,
    mode: Mode,
}

/// What the ports of an interface share.
pub(crate) struct Shared {
    /// Detached first: nothing is steered to a queue that is gone.
    steering: Steering,
    queues: Vec<Queue>,
    ports: Vec<Option<Reception>>,
    arrived: HeapSlab,
}

// SAFETY: packets are places in the memory of the queues beside them, and move with them.
#[allow(unsafe_code, reason = "the trait is unsafe to implement")]
unsafe impl Send for Shared {}

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
    /// The interface that has an address, opened if this process does not have it yet. It stays open until the process
    /// ends: who loses its tree takes a place in another a moment later, and a program that is loaded anew takes 25 MiB
    /// for that moment, in which aya reads the kernel's types.
    pub(crate) fn with_address(address: Ipv4Addr, mode: Mode) -> Result<Arc<Self>, OpenError> {
        static OPEN: Mutex<Vec<Arc<Interface>>> = Mutex::new(Vec::new());
        let (name, index) = find(address.into())?;
        // The sockets that are opened keep it.
        let key = Key { namespace: Namespace::open()?.number, index, mode };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.iter().find(|it| it.key == key) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(Self::open(name, key)?);
        open.push(Arc::clone(&opened));
        Ok(opened)
    }

    fn open(name: String, key: Key) -> Result<Self, OpenError> {
        let Key { index, mode, .. } = key;
        let counts = NicIndex::new(index).queue_counts().map_err(host("the number of queues"))?;
        // Packets of a queue beyond go to the network stack.
        let count = counts.rx_count().clamp(1, QUEUES_MAX);
        let mut steering = Steering::attach(&name, mode)?;
        let mut queues = Vec::new();
        for number in 0..count {
            let queue = Queue::open(index, number, Share::of(number, count), mode)
                .map_err(|error| OpenError::at(&name, PORTS_NEED, &*error))?;
            steering.give(&name, number, &queue.raw_fd())?;
            queues.push(queue);
        }
        let arrived = HeapSlab::with_capacity(BATCH);
        let shared = Shared { steering, queues, ports: Vec::new(), arrived };
        Ok(Self { name, key, shared: Mutex::new(shared) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nobody panics between two changes that belong together.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(
        &self,
        target: SocketAddrV4,
        doorbell: Arc<Doorbell>,
    ) -> Result<PortId, OpenError> {
        self.lock()
            .enter(target, doorbell)
            .ok_or_else(|| OpenError::Full { interface: self.name.clone() })
    }
}

impl Shared {
    /// Steers what goes to `target` here. None if there is no room.
    fn enter(&mut self, target: SocketAddrV4, doorbell: Arc<Doorbell>) -> Option<PortId> {
        if !self.steering.steer(target) {
            return None;
        }
        let packets = VecDeque::with_capacity(BATCH);
        let reception = Some(Reception { target, packets, doorbell, is_asleep: false });
        match self.ports.iter().position(Option::is_none) {
            Some(free) => {
                self.ports[free] = reception;
                Some(PortId(free))
            }
            None => {
                self.ports.push(reception);
                Some(PortId(self.ports.len() - 1))
            }
        }
    }

    /// Leaves a port's datagrams to the network stack again.
    pub(crate) fn leave(&mut self, port: PortId) {
        let Some(reception) = self.ports[port.0].take() else { return };
        self.steering.leave(reception.target);
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
            let copied = headers::read(&packet).and_then(
                |Arrived { source, route_back, payload, .. }| {
                    buffer.get_mut(..payload.len())?.copy_from_slice(payload);
                    Some((payload.len(), source, route_back))
                },
            );
            self.queues[queue].give_back(packet);
            self.queues[queue].refill();
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
            while self.queues[index].receive(&mut self.arrived) > 0 {
                while let Some(packet) = self.arrived.pop_back() {
                    self.deal(index, packet, port);
                }
                self.queues[index].refill();
                if self.ports[port.0].as_ref().is_some_and(|it| !it.packets.is_empty()) {
                    return true;
                }
            }
        }
        false
    }

    fn deal(&mut self, queue: usize, packet: Packet, asking: PortId) {
        let target = headers::target(&packet);
        let may_hold = self.queues[queue].may_hold_more(self.arrived.len());
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
pub(crate) fn find(address: IpAddr) -> Result<(String, u32), OpenError> {
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
