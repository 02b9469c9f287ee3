//! Packets in the network.

use tributary_protocol::node::PortId;
use tributary_wire::frame::{Header, Part};

use super::ids::{AggregatorId, MemberId, TransferId};
use super::transfer::PacketKind;
use crate::fabric::Vertex;

/// The number of a packet, reused after it is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketId(u32);

/// A packet.
#[derive(Clone, Debug)]
pub(super) struct Packet<P> {
    /// Its vertex, or the end of the link that it is on.
    pub(super) at: Vertex,
    /// Its destination.
    pub(super) to: Vertex,
    /// Its payload, without headers of the network.
    pub(super) bytes: u32,
    pub(super) cargo: Cargo<P>,
}

/// The content of a packet.
#[derive(Clone, Debug)]
pub(super) enum Cargo<P> {
    /// A frame to an aggregation node.
    ToNode { aggregator: AggregatorId, port: PortId, header: Header, piece: P },
    /// A frame to a member.
    ToMember { member: MemberId, header: Header, piece: P },
    /// A result in the fabric's multicast tree, at the tree's node `node`.
    Copy { group: u32, node: u32, part: Part, piece: P },
    /// A packet of a message between ranks.
    Message { transfer: TransferId, kind: PacketKind },
}

/// All packets in the network, in reused places.
#[derive(Debug)]
pub(super) struct Packets<P> {
    places: Vec<Option<Packet<P>>>,
    free: Vec<u32>,
}

impl<P> Default for Packets<P> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<P> Packets<P> {
    pub(super) fn put(&mut self, packet: Packet<P>) -> PacketId {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(packet);
            return PacketId(place);
        }
        self.places.push(Some(packet));
        PacketId(u32::try_from(self.places.len() - 1).expect("fewer than 2^32 packets at once"))
    }

    pub(super) fn at(&self, id: PacketId) -> &Packet<P> {
        self.places[id.0 as usize].as_ref().expect("a packet stays until its last event")
    }

    pub(super) fn at_mut(&mut self, id: PacketId) -> &mut Packet<P> {
        self.places[id.0 as usize].as_mut().expect("a packet stays until its last event")
    }

    pub(super) fn take(&mut self, id: PacketId) -> Packet<P> {
        self.free.push(id.0);
        self.places[id.0 as usize].take().expect("a packet stays until its last event")
    }
}
