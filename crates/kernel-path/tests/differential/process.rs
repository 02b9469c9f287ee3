//! The aggregator as a process: `protocol::node` behind the checks of its driver, as the oracle.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::num::NonZeroU16;

use tributary_protocol::node::{Event, Node, PortId};
use tributary_protocol::{Carrier, Time};
use tributary_protocol_testing::NodeMemory;
use tributary_protocol_testing::frames::decode;
use tributary_wire::ChildIndex;
use tributary_wire::frame::{EVERYONE, Header, Message, Subscription};

use crate::parent::{PARENT, parent_address};
use crate::root::{GROUP, edge, inner, multicast_by, multicast_capability, root, sent_by};

pub(crate) const PAYLOAD_MAX_BYTES: u32 = 1100;

/// One group's aggregator, and what its links and sockets know.
pub(crate) struct Process {
    node: Node,
    memory: NodeMemory,
    peers: Vec<SocketAddrV4>,
    /// The group has failed.
    pub(crate) has_failed: bool,
}

/// A frame to a child, or to everyone.
pub(crate) type Sent = (ChildIndex, Vec<u8>);

impl Process {
    /// A group with these children, which have all joined and take datagrams, at its root or below a parent. Results
    /// up to a length go by multicast, too, if one is given.
    pub(crate) fn new(
        window: u16,
        peers: &[SocketAddrV4],
        multicast: Option<u32>,
        is_root: bool,
    ) -> Self {
        let make = if is_root { root } else { inner };
        let (mut node, memory) = make(peers.len(), window, PAYLOAD_MAX_BYTES);
        if let Some(longest_bytes) = multicast {
            node.use_multicast(GROUP, multicast_capability(), longest_bytes);
        }
        let mut process = Self { node, memory, peers: peers.to_vec(), has_failed: false };
        for (child, peer) in peers.iter().enumerate() {
            process.hand_link(child, Message::Join);
            process.hand_link(child, Message::Datagrams(NonZeroU16::new(peer.port())));
        }
        process.drain();
        process
    }

    /// A child says who receives multicast. Returns what all have said.
    pub(crate) fn subscribe(
        &mut self,
        child: usize,
        subscription: Subscription,
    ) -> Vec<Subscription> {
        self.hand_link(child, Message::Subscribed(subscription));
        self.node.kernel_path().child_edges(GROUP).map(|edge| edge.subscription).collect()
    }

    fn hand_link(&mut self, child: usize, message: Message) {
        let header = Header { edge: edge(child), message };
        let port = PortId(child as u32);
        self.node
            .handle_frame(Time(1), port, Carrier::Link, &header, &[], &mut self.memory)
            .expect("an honest child");
    }

    /// Takes a datagram as the driver does. Returns what it sends; none if the datagram does not get as
    /// far as the machine, or is refused there.
    pub(crate) fn take(&mut self, source: SocketAddrV4, frame: &[u8]) -> Option<Vec<Sent>> {
        let (header, payload) = decode(frame).ok()?;
        let port = self.node.port_of_datagram(&header)?;
        let peer = SocketAddr::new(IpAddr::V4(*source.ip()), source.port());
        let parent = Some(parent_address()).filter(|_| port.0 as usize == PARENT);
        if self.peers.get(port.0 as usize).copied().or(parent).map(SocketAddr::V4) != Some(peer) {
            return None;
        }
        let carrier = Carrier::Datagram;
        self.node
            .handle_frame(Time(2), port, carrier, &header, payload, &mut self.memory)
            .ok()
            .map(|()| self.drain())
    }

    fn drain(&mut self) -> Vec<Sent> {
        let sent = sent_by(&mut self.node, &self.memory);
        while let Some(event) = self.node.poll_event() {
            self.has_failed |= matches!(event, Event::Failed { .. });
        }
        let multicasts = multicast_by(&mut self.node, &self.memory).into_iter();
        // What the parent hears over the link, of subscriptions, the program does not say.
        let datagrams = sent.into_iter().filter(|(_, carrier, _)| *carrier != Carrier::Link);
        let datagrams = datagrams.map(|(port, _, frame)| (ChildIndex(port.0 as u16), frame));
        multicasts.map(|frame| (EVERYONE, frame)).chain(datagrams).collect()
    }
}
