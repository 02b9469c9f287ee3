//! Datagrams of several senders, delivered into a ring in this process's memory.
//!
//! A program of the host's service writes to [`ring`]s. A process has a [`table`] for each interface, with a connection to the service.

#[allow(unsafe_code, reason = "the kernel writes into the same memory")]
mod ring;
mod table;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process;
use std::sync::Arc;

use crate::admission::Admission;
use crate::destination::Destination;
use crate::error::OpenError;
use crate::headers::read_from_ip;
use crate::service_address::ServiceAddress;
use table::Table;

pub use ring::{RING_BYTES, RINGS_MAX, Reader, map as map_rings};

/// Datagrams to some addresses of one process, as they arrive at one interface. They come here until it is dropped, and a socket that
/// is bound to their address gets what the program does not deliver: fragments, trains of datagrams, datagrams that do not
/// show the admission, or find the ring full, and all of them when the host's service has ended.
///
/// Not for children that the process forks: one that has a copy may only drop it.
pub struct Delivery {
    table: Arc<Table>,
    /// There until this is dropped.
    reader: Option<Reader>,
    targets: Vec<Destination>,
    process: u32,
}

impl Delivery {
    /// Takes a ring at the interface that has the address `at`. Nothing is delivered yet.
    ///
    /// # Errors
    /// If there is no service, it refuses, or all rings are taken.
    pub fn open(at: IpAddr, service: &ServiceAddress) -> Result<Self, OpenError> {
        let table = Table::with_address(at, service)?;
        let reader = table.take_ring()?;
        Ok(Self { table, reader: Some(reader), targets: Vec::new(), process: process::id() })
    }

    /// Delivers what goes to `target`, which this socket is bound to: an address of the interface, or a multicast address that the
    /// socket has subscribed to there. A service believes the socket alone.
    ///
    /// # Errors
    /// If another ring gets it with another admission, another process's ring gets it, the table is full, or the service refuses.
    pub fn add(
        &mut self,
        target: SocketAddr,
        socket: impl AsFd,
        admission: Admission,
    ) -> Result<(), OpenError> {
        let target = Destination::from(target);
        self.table.enter(target, socket.as_fd(), admission, self.reader().index())?;
        self.targets.push(target);
        Ok(())
    }

    /// The next datagram, copied to the start of `buffer`: its length and its source, which can be forged. A datagram
    /// that is damaged, or longer than the buffer, is dropped. Several that were sent as a train may come as one.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let interface = self.table.interface();
        loop {
            let copied = self.reader_mut().read(|packet| {
                let (source, payload) = read_from_ip(packet, interface)?;
                buffer.get_mut(..payload.len())?.copy_from_slice(payload);
                Some((payload.len(), source))
            })?;
            if copied.is_some() {
                return copied;
            }
        }
    }

    /// Whether there is nothing to receive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reader().is_empty()
    }

    /// Gets ready to sleep until one of the sockets is readable, as it will be when the last of so many datagrams has come.
    /// False if there is a datagram already.
    #[must_use]
    pub fn arm(&mut self, lacking: u32) -> bool {
        self.reader().arm(lacking)
    }

    /// Ends what [`Delivery::arm`] began.
    pub fn disarm(&mut self) {
        self.reader().disarm();
    }

    fn reader(&self) -> &Reader {
        self.reader.as_ref().expect("there until this is dropped")
    }

    fn reader_mut(&mut self) -> &mut Reader {
        self.reader.as_mut().expect("there until this is dropped")
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        // The table is the parent's, too.
        if self.process == process::id()
            && let Some(reader) = self.reader.take()
        {
            self.table.leave(&self.targets, reader);
        }
    }
}
