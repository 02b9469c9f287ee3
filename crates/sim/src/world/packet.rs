//! Packets under way.

use tributary_protocol::node::PortId;
use tributary_wire::frame::{Header, Part};

use super::ids::{AggregatorId, MemberId, TransferId};
use super::transfer::PacketKind;
use crate::fabric::Vertex;

/// Names a packet until it is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketId(u32);

/// A packet.
#[derive(Clone, Debug)]
pub(super) struct Packet<P> {
    /// Where it is, or where its next link ends.
    pub(super) at: Vertex,
    /// Where it goes.
    pub(super) to: Vertex,
    /// What it carries, headers of the network not counted.
    pub(super) bytes: u32,
    pub(super) cargo: Cargo<P>,
}

/// What a packet is about.
#[derive(Clone, Debug)]
pub(super) enum Cargo<P> {
    /// A frame to an aggregation node.
    ToNode { aggregator: AggregatorId, port: PortId, header: Header, piece: P },
    /// A frame to a member.
    ToMember { member: MemberId, header: Header, piece: P },
    /// A result on its way through the fabric's multicast tree: `node` numbers the tree's nodes.
    Copy { group: u32, node: u32, part: Part, piece: P },
    /// A packet of a message between ranks.
    Message { transfer: TransferId, kind: PacketKind },
}

/// All packets under way, in reused places.
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
        self.places[id.0 as usize].as_ref().expect("an event's packet is under way")
    }

    pub(super) fn at_mut(&mut self, id: PacketId) -> &mut Packet<P> {
        self.places[id.0 as usize].as_mut().expect("an event's packet is under way")
    }

    pub(super) fn take(&mut self, id: PacketId) -> Packet<P> {
        self.free.push(id.0);
        self.places[id.0 as usize].take().expect("an event's packet is under way")
    }
}
