//! An aggregator of one group as the process has it: `protocol::node` with all its members about to join.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU16;

use tributary_protocol::node::{
    ChildConfig, Event, GroupConfig, Node, NodeConfig, ParentConfig, PortId, StreamLimits, Transmit,
};
use tributary_protocol::{Carrier, Time};
use tributary_protocol_testing::NodeMemory;
use tributary_protocol_testing::frames::encode;
use tributary_wire::frame::{Edge, Header, Message, Versions};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId};

use crate::parent::{parent_config, parent_edge};

pub(crate) const GROUP: GroupId = GroupId(3);
pub(crate) const EPOCH: Epoch = Epoch(9);

/// Where the group's results go by multicast, if they do.
pub(crate) const MULTICAST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 205, 9), 7475);

/// What they show there.
pub(crate) fn multicast_capability() -> Capability {
    Capability::from_bytes([200; 16])
}

pub(crate) fn capability(child: usize) -> Capability {
    Capability::from_bytes([child as u8 + 1; 16])
}

pub(crate) fn edge(child: usize) -> Edge {
    edge_of(ChildIndex(child as u16), capability(child))
}

pub(crate) fn edge_of(child: ChildIndex, capability: Capability) -> Edge {
    Edge { group: GROUP, epoch: EPOCH, child, capability, version: Versions::SPOKEN.newest }
}

/// A root that takes datagrams.
pub(crate) fn root(children: usize, window: u16, payload_max_bytes: u32) -> (Node, NodeMemory) {
    node_with(children, window, payload_max_bytes, None)
}

/// An aggregator that exchanges datagrams with its parent, too.
pub(crate) fn inner(children: usize, window: u16, payload_max_bytes: u32) -> (Node, NodeMemory) {
    let (mut node, mut memory) =
        node_with(children, window, payload_max_bytes, Some(parent_config()));
    node.offer_datagrams(GROUP);
    for (carrier, message) in [
        (Carrier::Link, Message::Datagrams(NonZeroU16::new(7471))),
        (Carrier::Datagram, Message::Probed(0)),
    ] {
        sent_by(&mut node, &memory);
        let (header, port) = (Header { edge: parent_edge(), message }, parent_config().port);
        node.handle_frame(Time(0), port, carrier, &header, &[], &mut memory)
            .expect("an honest parent");
    }
    (node, memory)
}

fn node_with(
    children: usize,
    window: u16,
    payload_max_bytes: u32,
    parent: Option<ParentConfig>,
) -> (Node, NodeMemory) {
    let mut node = Node::new(NodeConfig {
        frame_versions: Versions::SPOKEN,
        radix_max: 16,
        osos_max: 16,
        groups_max: 8,
        payload_max_bytes,
        join_timeout_ns: 1_000_000,
        streams: StreamLimits::NONE,
    });
    node.take_datagrams(NonZeroU16::new(7471).expect("not zero"), 1388);
    let children = (0..children).map(|child| ChildConfig {
        capability: capability(child),
        members: EndpointId(child as u32)..EndpointId(child as u32 + 1),
        is_node: false,
    });
    let config = GroupConfig {
        group: GROUP,
        epoch: EPOCH,
        frame_version: Versions::SPOKEN.newest,
        osos: window,
        payload_max_bytes,
        children: children.collect(),
        parent,
        stream: None,
    };
    let arena = node.install(Time(0), config).expect("the node has room");
    let mut memory = NodeMemory::default();
    memory.install(&node, GROUP, arena);
    (node, memory)
}

/// Results that an aggregator has to send to the multicast address.
pub(crate) fn multicast_by(node: &mut Node, memory: &NodeMemory) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some((_, transmit)) = node.poll_multicast() {
        frames.push(frame_of(&transmit, memory));
    }
    frames
}

fn frame_of(transmit: &Transmit, memory: &NodeMemory) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some(place) = transmit.body {
        memory.append(place, transmit.header.payload_bytes(), &mut body);
    }
    encode(&transmit.header, &body)
}

/// Everything else that an aggregator has to send: to whom, by what, and the frame.
pub(crate) fn sent_by(node: &mut Node, memory: &NodeMemory) -> Vec<(PortId, Carrier, Vec<u8>)> {
    let mut sent = Vec::new();
    while let Some(port) = node.poll_ready() {
        while let Some(transmit) = node.peek_transmit(port) {
            sent.push((port, transmit.carrier, frame_of(&transmit, memory)));
            node.pop_transmit(port);
        }
    }
    sent
}

/// Looks at an aggregator's events: its group must not fail.
pub(crate) fn assert_lives(node: &mut Node, seed: u64) {
    while let Some(event) = node.poll_event() {
        assert!(!matches!(event, Event::Failed { .. }), "seed {seed}: {event:?}");
    }
}
