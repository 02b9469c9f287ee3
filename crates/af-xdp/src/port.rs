//! One UDP port whose datagrams bypass the network stack.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;

use crate::doorbell::Doorbell;
use crate::error::OpenError;
use crate::headers::{self, HEADERS_BYTES, Route};
use crate::interface::{Interface, PortId};
use crate::service_address::ServiceAddress;

/// Longest payload of a datagram that is sent past the network stack: an Ethernet's with its usual MTU of 1,500 bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1514 - HEADERS_BYTES;

/// What [`Port::send`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Taken {
    /// Datagrams taken; the rest found no room.
    pub count: usize,
    /// Whether the kernel has all that was taken. If not, [`Port::flush`] is to be called.
    pub is_sent: bool,
}

/// Datagrams to one address and port. They come here from [`Port::open`] on until it is dropped, and no longer to
/// the socket that is bound there; that socket must live as long.
///
/// Nothing is known of the network's hardware addresses. A datagram that arrived shows the way back, and is followed
/// once the owner has said that it was genuine ([`Port::confirm`]). Before that nothing can be sent.
pub struct Port {
    interface: Arc<Interface>,
    id: PortId,
    target: SocketAddrV4,
    doorbell: Arc<Doorbell>,
    /// Readable if a queue has something, or the doorbell was rung.
    wakes: OwnedFd,
    route: Option<Route>,
    /// The way back of the datagram received last.
    last: Option<Route>,
}

impl Port {
    /// Has datagrams to `target`, which arrive at the interface with the address `at`, steered to this port by the host's service.
    /// `socket` is bound to `target`: an address of that interface, or a multicast address that the socket has subscribed to there.
    /// The service believes the socket alone.
    ///
    /// # Errors
    /// If there is no service, it refuses, another process has the interface, or the kernel refuses.
    pub fn open(
        at: Ipv4Addr,
        target: SocketAddrV4,
        socket: impl AsFd,
        service: &ServiceAddress,
    ) -> Result<Self, OpenError> {
        let host = |problem| OpenError::Host { what: "a descriptor", problem };
        let interface = Interface::with_address(at, service)?;
        let doorbell = Arc::new(Doorbell::new().map_err(host)?);
        let wakes =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| host(error.into()))?;
        let watch = |fd: BorrowedFd<'_>| {
            epoll::add(&wakes, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(|error| host(error.into()))
        };
        interface.lock().sockets().try_for_each(watch)?;
        watch(doorbell.as_fd())?;
        let id = interface.lock().enter(target, socket.as_fd(), Arc::clone(&doorbell))?;
        Ok(Self { interface, id, target, doorbell, wakes, route: None, last: None })
    }

    /// The next datagram, copied to the start of `buffer`: its length and its source, which can be forged. A datagram
    /// that is damaged, or longer than the buffer, is dropped. Several that were sent as a train may come as one.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddrV4)> {
        let (len_bytes, source, route_back) = self.interface.lock().receive(self.id, buffer)?;
        self.last = Some(route_back);
        Some((len_bytes, source))
    }

    /// The datagram received last came from who it says: what is sent from now on goes the way that it came.
    pub fn confirm(&mut self) {
        if let Some(last) = self.last.take() {
            self.route = Some(last);
        }
    }

    /// Whether a way to the peer is known.
    #[must_use]
    pub fn can_send(&self) -> bool {
        self.route.is_some()
    }

    /// Sends datagrams from this port to `peer`, together. Takes none if no way is known.
    pub fn send<'a>(
        &mut self,
        peer: SocketAddrV4,
        payloads: impl IntoIterator<Item = &'a [u8]>,
    ) -> Taken {
        let Some(route) = self.route else { return Taken { count: 0, is_sent: true } };
        let mut shared = self.interface.lock();
        let sender = shared.sender();
        let taken = payloads.into_iter().take_while(|payload| {
            payload.len() <= PAYLOAD_BYTES_MAX
                && sender.put(&headers::write(&route, self.target, peer, payload), payload)
        });
        let count = taken.count();
        Taken { count, is_sent: sender.flush() }
    }

    /// Sends what was taken and the kernel had no room for. False if it still has none.
    pub fn flush(&mut self) -> bool {
        self.interface.lock().sender().flush()
    }

    /// Gets ready to sleep until [`Port::as_fd`] is readable. False if there is a datagram already. Other ports of
    /// the interface may take this one's datagrams out of the queues meanwhile; then the descriptor tells, too.
    pub fn arm(&mut self) -> bool {
        self.interface.lock().may_sleep(self.id)
    }

    /// Ends what [`Port::arm`] began.
    pub fn disarm(&mut self) {
        self.interface.lock().wake(self.id);
        self.doorbell.silence();
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.interface.lock().leave(self.id);
    }
}
