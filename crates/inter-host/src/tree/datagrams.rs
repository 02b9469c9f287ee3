//! The sockets that a member exchanges datagrams over, and which of them is polled when.

use std::net::{IpAddr, SocketAddr};

use tributary_transport::udp::{Port, ServiceAddress};
use tributary_transport::{AuthenticationKey, DatagramSocket, TcpLink};

/// What a member needs for datagrams.
pub(super) struct Datagrams {
    pub(super) socket: DatagramSocket,
    /// The aggregation node's end of the link.
    pub(super) peer: SocketAddr,
    pub(super) is_open: bool,
    /// The key that authenticates all of them, if the group has one.
    pub(super) key: Option<AuthenticationKey>,
    /// Where the group's multicast results arrive, if it has any.
    pub(super) multicast_receiver: Option<DatagramSocket>,
    /// Whether the next full round polls the socket that results do not usually come to: every second
    /// does, and one whenever the kernel says that there is something.
    pub(super) is_other_next: bool,
    /// Why frames do not go past the network stack although that was asked for.
    pub(super) without_bypass: Option<String>,
}

impl Datagrams {
    /// A socket beside a link, at the same address.
    pub(super) fn beside(link: &TcpLink, key: Option<AuthenticationKey>) -> Option<Self> {
        let (ours, peer) = (link.local_address().ok()?, link.peer_address().ok()?);
        let socket = DatagramSocket::bind(SocketAddr::new(ours.ip(), 0)).ok()?;
        Some(Self {
            socket,
            peer,
            is_open: false,
            key,
            multicast_receiver: None,
            is_other_next: true,
            without_bypass: None,
        })
    }

    /// Takes frames past the network stack by sockets of a service, if that is possible. To be called when all sockets are there.
    pub(super) fn bypass_stack(&mut self, service: &ServiceAddress) {
        self.without_bypass = self.try_to_bypass_stack(service).err();
    }

    fn try_to_bypass_stack(&mut self, service: &ServiceAddress) -> Result<(), String> {
        let ours = self.socket.address().map_err(|error| error.to_string())?;
        let IpAddr::V4(interface) = ours.ip() else {
            return Err("AF_XDP is for IPv4 only".to_owned());
        };
        let open = |socket: &DatagramSocket| {
            let SocketAddr::V4(target) = socket.address().map_err(|error| error.to_string())?
            else {
                return Err("AF_XDP is for IPv4 only".to_owned());
            };
            Port::open(interface, target, socket, service).map_err(|error| error.to_string())
        };
        let port = open(&self.socket)?;
        if let Some(receiver) = &mut self.multicast_receiver {
            let port = open(receiver)?;
            receiver.bypass_stack(port);
        }
        self.socket.bypass_stack(port);
        Ok(())
    }

    /// What carries frames.
    pub(super) fn carrier(&self) -> &'static str {
        if self.socket.bypasses_stack() { "xdp" } else { "udp" }
    }

    /// Whether this round polls the socket that results do not usually come to.
    pub(super) fn is_other_due(&mut self) -> bool {
        let is_due = self.is_other_next;
        self.is_other_next = !is_due;
        is_due
    }

    pub(super) fn port(&self) -> Option<std::num::NonZeroU16> {
        self.socket.address().ok()?.port().try_into().ok()
    }
}
