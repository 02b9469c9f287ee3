//! Aggregation nodes: the protocol's machine, and its time in a switch or a daemon.

use tributary_protocol::node::{Node, PortId};
use tributary_wire::frame::Edge;

use super::cost::NodeCosts;
use super::frames::Frame;
use super::ids::{AggregatorId, MemberId, ProcessId};
use super::payload::Data;
use crate::engine::Picos;
use crate::fabric::Vertex;

/// A port: the other end of its link, and the one edge that the link carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) peer: Peer,
    pub(super) edge: Edge,
}

/// The other end of a port.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Member { member: MemberId, host: Vertex },
    Node { aggregator: AggregatorId, port: PortId, vertex: Vertex },
}

/// An aggregation node: an engine that takes packets and reduces, and one that sends copies. Both serve
/// all groups and ports, first come, first served.
pub(super) struct Aggregator<D: Data> {
    pub(super) vertex: Vertex,
    pub(super) node: Node,
    pub(super) arenas: D::Arenas,
    pub(super) ports: Vec<Port>,
    /// Requests that arrived before their slot was free.
    pub(super) deferred: Vec<(PortId, Frame<D::Piece>)>,
    pub(super) engines: Engines,
    /// When its timer goes off.
    pub(super) timer_at: Option<Picos>,
    /// The process whose core the aggregator has to share; none if it has a core of its own.
    pub(super) core_of: Option<ProcessId>,
}

/// Until when each engine of an aggregator is busy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Engines {
    pub(super) take_free_at: Picos,
    pub(super) reply_free_at: Picos,
}

impl Engines {
    /// Takes a packet that can be seen at `ready`. Returns when it is reduced.
    pub(super) fn take(&mut self, costs: &NodeCosts, ready: Picos, cost: Picos) -> Picos {
        self.take_free_at = ready.max(self.take_free_at) + cost;
        if costs.has_one_thread {
            self.reply_free_at = self.reply_free_at.max(self.take_free_at);
        }
        self.take_free_at
    }

    /// Makes a copy of a result that is there at `ready`. Returns when it leaves.
    pub(super) fn reply(&mut self, costs: &NodeCosts, ready: Picos, cost: Picos) -> Picos {
        let leaves_at = ready.max(self.reply_free_at);
        self.reply_free_at = leaves_at + cost;
        if costs.has_one_thread {
            self.take_free_at = self.take_free_at.max(self.reply_free_at);
        }
        leaves_at
    }
}

impl<D: Data> Aggregator<D> {
    pub(super) fn plug(&mut self, peer: Peer, edge: Edge) -> PortId {
        self.ports.push(Port { peer, edge });
        PortId(self.ports.len() as u32 - 1)
    }
}
