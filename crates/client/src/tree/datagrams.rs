//! The sockets that a member exchanges datagrams over, and which of them is looked at when.

use std::net::SocketAddr;

use tributary_transport::{DatagramSocket, SealKey, TcpLink};

/// Of the two sockets for datagrams, the one to which results do not usually come is looked at once
/// in so many rounds that look around, and whenever the kernel says that there is something.
const ROUNDS_PER_OTHER: u32 = 1;

/// What a member needs for datagrams.
pub(super) struct Datagrams {
    pub(super) socket: DatagramSocket,
    /// The aggregation node's end of the link.
    pub(super) peer: SocketAddr,
    pub(super) is_open: bool,
    /// What all of them are sealed with, if they are.
    pub(super) key: Option<SealKey>,
    /// Where the group's multicast is heard, if it has any.
    pub(super) ear: Option<DatagramSocket>,
    /// Rounds until the socket that results do not usually come to is looked at again.
    pub(super) other_due_in: u32,
}

impl Datagrams {
    /// A socket beside a link, at the same address.
    pub(super) fn beside(link: &TcpLink, key: Option<SealKey>) -> Option<Self> {
        let (ours, peer) = (link.local_address().ok()?, link.peer_address().ok()?);
        let socket = DatagramSocket::bind(SocketAddr::new(ours.ip(), 0)).ok()?;
        Some(Self { socket, peer, is_open: false, key, ear: None, other_due_in: 0 })
    }

    /// Whether this round looks at the socket that results do not usually come to.
    pub(super) fn is_other_due(&mut self) -> bool {
        let is_due = self.other_due_in == 0;
        self.other_due_in = if is_due { ROUNDS_PER_OTHER } else { self.other_due_in - 1 };
        is_due
    }

    pub(super) fn port(&self) -> Option<std::num::NonZeroU16> {
        self.socket.address().ok()?.port().try_into().ok()
    }
}
