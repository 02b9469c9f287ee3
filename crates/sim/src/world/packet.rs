//! Packets in the network.

use tributary_protocol::node::PortId;

use super::frames::FrameId;
use super::ids::{AggregatorId, MemberId, TransferId};
use super::transfer::PacketKind;
use crate::fabric::Vertex;

/// A packet. It travels inside its event, so what is handled next lies next in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Where it began.
    pub(super) from: Vertex,
    /// Its vertex, or the end of the link that it is on.
    pub(super) at: Vertex,
    /// Its destination.
    pub(super) to: Vertex,
    /// Its payload, without headers of the network.
    pub(super) bytes: u32,
    pub(super) cargo: Cargo,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cargo {
    /// A frame to an aggregation node.
    ToNode { aggregator: AggregatorId, port: PortId, frame: FrameId },
    /// A frame to a member.
    ToMember { member: MemberId, frame: FrameId },
    /// A result in the fabric's multicast tree, at the tree's node `node`.
    Copy { group: u32, node: u32, frame: FrameId },
    /// A packet of a message between ranks.
    Message { transfer: TransferId, kind: PacketKind },
}
