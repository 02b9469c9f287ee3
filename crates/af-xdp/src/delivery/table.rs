//! What one process has at one interface: readers of rings, and what goes into each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ring::{self, RINGS_MAX, Reader};
use crate::admission::Admission;
use crate::connection::Connection;
use crate::destination::Destination;
use crate::error::OpenError;
use crate::interface::{Namespace, find, host};
use crate::service_address::ServiceAddress;

/// The rings of this process at an interface.
pub(super) struct Table {
    interface: String,
    key: Key,
    shared: Mutex<Shared>,
    _namespace: Namespace,
}

/// Tells tables apart, also those of different network namespaces, and of a process and its child.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    process: u32,
    namespace: u64,
    index: u32,
    service: ServiceAddress,
}

struct Shared {
    connection: Connection,
    known: BTreeMap<Destination, Receivers>,
    free: Vec<Reader>,
}

/// What goes to an address.
#[derive(Clone, Copy)]
struct Receivers {
    admission: Admission,
    /// A bit for each ring.
    rings: u32,
}

const _: () = assert!(RINGS_MAX <= u32::BITS as usize);

impl Table {
    /// That of the interface that has an address, opened if this process does not have it yet. It stays open until the process ends, or
    /// the service does: programs make and free communicators, and a program that is loaded anew takes milliseconds.
    pub(super) fn with_address(
        address: IpAddr,
        service: &ServiceAddress,
    ) -> Result<Arc<Self>, OpenError> {
        static OPEN: Mutex<Vec<Arc<Table>>> = Mutex::new(Vec::new());
        let (interface, index) = find(address)?;
        let namespace = Namespace::open()?;
        let key = Key {
            process: process::id(),
            namespace: namespace.number,
            index,
            service: service.clone(),
        };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of a parent stay: their locks may be held by threads that are not here.
        open.retain(|it| it.key.process != key.process || it.lock().connection.is_open());
        if let Some(known) = open.iter().find(|it| it.key == key) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(Self::open(address, interface, key, namespace)?);
        open.push(Arc::clone(&opened));
        Ok(opened)
    }

    fn open(
        address: IpAddr,
        interface: String,
        key: Key,
        namespace: Namespace,
    ) -> Result<Self, OpenError> {
        let (connection, rings) = Connection::open(&key.service, address)?;
        let free = ring::map(rings.as_fd()).map_err(host("memory for rings"))?;
        let shared = Mutex::new(Shared { connection, known: BTreeMap::new(), free });
        Ok(Self { interface, key, shared, _namespace: namespace })
    }

    /// The interface's number.
    pub(super) fn interface(&self) -> u32 {
        self.key.index
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nobody panics between two changes that belong together.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ring that nothing is in.
    pub(super) fn take_ring(&self) -> Result<Reader, OpenError> {
        let free = &mut self.lock().free;
        // A program that still wrote for the ring's last owner may be at work.
        while let Some(mut reader) = free.pop() {
            if reader.drain() {
                return Ok(reader);
            }
        }
        Err(OpenError::Full { interface: self.interface.clone() })
    }

    /// Delivers what goes to `target`, which `socket` is bound to, into one ring more.
    pub(super) fn enter(
        &self,
        target: Destination,
        socket: BorrowedFd<'_>,
        admission: Admission,
        ring: usize,
    ) -> Result<(), OpenError> {
        let Shared { connection, known, .. } = &mut *self.lock();
        let rings = match known.get(&target) {
            Some(receivers) if receivers.admission != admission => {
                return Err(OpenError::Claimed {
                    interface: self.interface.clone(),
                    target: target.into(),
                });
            }
            Some(receivers) => receivers.rings | 1 << ring,
            None => 1 << ring,
        };
        connection.enter(socket, admission, rings)?;
        known.insert(target, Receivers { admission, rings });
        Ok(())
    }

    /// Delivers nothing more into a ring that these addresses had.
    pub(super) fn leave(&self, left: &[Destination], reader: Reader) {
        let Shared { connection, known, free } = &mut *self.lock();
        for target in left {
            let Some(receivers) = known.get_mut(target) else { continue };
            receivers.rings &= !(1 << reader.index());
            let rings = receivers.rings;
            if rings == 0 {
                known.remove(target);
            }
            // What can't be changed goes on to a ring that nobody reads, which is full soon and leaves the rest to the stack.
            let _ = connection.keep(*target, rings);
        }
        // The rings that were used last come last, when nobody writes into them any more.
        free.insert(0, reader);
    }
}
