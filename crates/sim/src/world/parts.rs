//! A system taken apart: its machines as they stand, for another model of the time they need.
//!
//! Owns nothing: who takes the parts drives them from then on. Used by [`crate::machine`].

use tributary_protocol::endpoint::Endpoint;
use tributary_protocol::node::{Node, PortId};

use super::aggregator::Peer;
use super::{AggregatorId, Data, MemberId, World};
use crate::engine::Picos;

/// What is at the other end of a node's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarEnd {
    /// A member.
    Member(MemberId),
    /// A port of another node.
    Node(AggregatorId, PortId),
}

/// An aggregation node, with what its memory holds.
pub struct NodePart<D: Data> {
    /// The machine.
    pub machine: Node,
    /// Its memory.
    pub arenas: D::Arenas,
    /// What its ports lead to, in their order.
    pub ports: Vec<FarEnd>,
}

/// A member of a group.
pub struct MemberPart {
    /// The machine.
    pub machine: Endpoint,
    /// The node above it.
    pub node: AggregatorId,
    /// That node's port towards it.
    pub port: PortId,
}

/// All machines of a system, in the order of their numbers.
pub struct Parts<D: Data> {
    /// Aggregation nodes.
    pub nodes: Vec<NodePart<D>>,
    /// Members.
    pub members: Vec<MemberPart>,
    /// The time up to which they have been driven.
    pub at: Picos,
}

impl<D: Data> World<D> {
    /// Takes a system apart in which nothing is under way.
    ///
    /// # Panics
    /// If something is left to happen: a machine would wait for it for ever.
    #[must_use]
    pub fn into_parts(self) -> Parts<D> {
        assert!(self.agenda.is_empty(), "{} events are left to happen", self.agenda.len());
        let at = self.agenda.now();
        let far_end = |peer: &Peer| match *peer {
            Peer::Member(member) => FarEnd::Member(member),
            Peer::Node { aggregator, port } => FarEnd::Node(aggregator, port),
        };
        let nodes = self.aggregators.into_iter().map(|aggregator| NodePart {
            ports: aggregator.ports.iter().map(far_end).collect(),
            machine: aggregator.node,
            arenas: aggregator.arenas,
        });
        let members = self.members.into_iter().map(super::member::Member::into_part);
        Parts { nodes: nodes.collect(), members: members.collect(), at }
    }
}
