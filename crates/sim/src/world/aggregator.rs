//! Aggregation nodes: the protocol's machine, and its time in a switch or a daemon.

use tributary_protocol::Carrier;
use tributary_protocol::node::{FrameError, Node, NodeConfig, PortId, Transmit};
use tributary_wire::ChildIndex;
use tributary_wire::frame::{Header, Message, Part, Target};

use super::cost::NodeCosts;
use super::ids::{AggregatorId, MemberId};
use super::packet::{Cargo, Packet, PacketId};
use super::{Data, Event, RunError, World, time_at};
use crate::engine::Picos;
use crate::fabric::Vertex;

/// The other end of a port.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    Member(MemberId),
    Node { aggregator: AggregatorId, port: PortId },
}

/// An aggregation node: an engine that takes packets and reduces, and one that sends copies. Both serve
/// all groups and ports, first come, first served.
pub(super) struct Aggregator<D: Data> {
    pub(super) vertex: Vertex,
    pub(super) node: Node,
    pub(super) arenas: D::Arenas,
    pub(super) ports: Vec<Peer>,
    /// Requests that arrived before their slot was free; see [`World::defer`].
    deferred: Vec<(PortId, Header, D::Piece)>,
    engines: Engines,
}

/// Until when each engine of a node is busy.
#[derive(Clone, Copy, Debug, Default)]
struct Engines {
    take_free_at: Picos,
    reply_free_at: Picos,
}

impl Engines {
    /// Takes a packet that can be seen at `ready`. Returns when it is reduced.
    fn take(&mut self, costs: &NodeCosts, ready: Picos, reduced_bytes: u32) -> Picos {
        self.take_free_at = ready.max(self.take_free_at) + costs.take.of(reduced_bytes);
        if costs.has_one_thread {
            self.reply_free_at = self.reply_free_at.max(self.take_free_at);
        }
        self.take_free_at
    }

    /// Makes a copy of a result that is there at `ready`. Returns when it leaves.
    fn reply(&mut self, costs: &NodeCosts, ready: Picos, bytes: u32) -> Picos {
        let leaves_at = ready.max(self.reply_free_at);
        self.reply_free_at = leaves_at + costs.reply.of(bytes);
        if costs.has_one_thread {
            self.take_free_at = self.take_free_at.max(self.reply_free_at);
        }
        leaves_at
    }
}

impl<D: Data> Aggregator<D> {
    pub(super) fn plug(&mut self, peer: Peer) -> PortId {
        self.ports.push(peer);
        PortId(self.ports.len() as u32 - 1)
    }
}

impl<D: Data> World<D> {
    /// Adds an aggregation node in a switch, or on a host.
    ///
    /// # Panics
    /// If the fabric has no such vertex.
    pub fn add_aggregator(&mut self, vertex: Vertex, config: NodeConfig) -> AggregatorId {
        assert!(vertex.0 < self.network.wiring().vertices(), "{vertex:?} is not in the fabric");
        let id = AggregatorId(self.aggregators.len() as u32);
        self.aggregators.push(Aggregator {
            vertex,
            node: Node::new(config),
            arenas: D::Arenas::default(),
            ports: Vec::new(),
            deferred: Vec::new(),
            engines: Engines::default(),
        });
        id
    }

    pub(super) fn node_receives(
        &mut self,
        seen_at: Picos,
        id: AggregatorId,
        port: PortId,
        header: &Header,
        piece: &D::Piece,
    ) {
        let bytes = header.payload_bytes();
        let Aggregator { node, arenas, engines, .. } = &mut self.aggregators[id.index()];
        // The engine forwards a result, but reads every byte of a contribution.
        let reduced = if matches!(header.message, Message::Request(_)) { bytes as u32 } else { 0 };
        let ready = engines.take(&self.costs.node, seen_at, reduced) + self.costs.node.latency;
        let now = time_at(self.events.now());
        let payload = D::bytes(piece, bytes);
        match node.handle_frame(now, port, Carrier::Link, header, payload, arenas) {
            Ok(()) => self.drain_node(ready, id),
            Err(fault) => self.defer(id, port, header, piece, fault),
        }
        if matches!(header.message, Message::Result(_)) {
            self.resume_deferred(ready, id);
        }
        while self.aggregators[id.index()].node.poll_event().is_some() {}
    }

    /// Keeps a request that arrives before its slot is free.
    ///
    /// This happens when a multicast result overtakes the reliable one: the member completes the
    /// operation before its aggregation node does.
    fn defer(
        &mut self,
        id: AggregatorId,
        port: PortId,
        header: &Header,
        piece: &D::Piece,
        fault: FrameError,
    ) {
        let group = &self.groups[header.edge.group.0 as usize];
        if matches!(fault, FrameError::OutsideWindow { .. }) && group.has_multicast() {
            self.aggregators[id.index()].deferred.push((port, *header, piece.clone()));
        } else {
            self.fault = Some(RunError::Node { node: id.0, fault });
        }
    }

    /// A result has freed a slot: handles the requests that waited for one.
    fn resume_deferred(&mut self, ready: Picos, id: AggregatorId) {
        let now = time_at(self.events.now());
        for (port, header, piece) in core::mem::take(&mut self.aggregators[id.index()].deferred) {
            let Aggregator { node, arenas, .. } = &mut self.aggregators[id.index()];
            let payload = D::bytes(&piece, header.payload_bytes());
            match node.handle_frame(now, port, Carrier::Link, &header, payload, arenas) {
                Ok(()) => self.drain_node(ready, id),
                Err(fault) => self.defer(id, port, &header, &piece, fault),
            }
        }
    }

    /// Sends the machine's frames, one copy after the other.
    pub(super) fn drain_node(&mut self, ready: Picos, id: AggregatorId) {
        while let Some(port) = self.aggregators[id.index()].node.poll_ready() {
            while let Some(transmit) = self.aggregators[id.index()].node.peek_transmit(port) {
                self.aggregators[id.index()].node.pop_transmit(port);
                self.node_sends(ready, id, port, &transmit);
            }
        }
    }

    fn node_sends(&mut self, ready: Picos, id: AggregatorId, port: PortId, transmit: &Transmit) {
        let header = transmit.header;
        let bytes = header.payload_bytes();
        let aggregator = &self.aggregators[id.index()];
        let piece = match transmit.body {
            Some(place) => D::read(&aggregator.arenas, place, bytes),
            None => D::Piece::default(),
        };
        let at = aggregator.vertex;
        if let Message::Result(part) = header.message
            && header.edge.child == ChildIndex(0)
            && is_for_all(&part)
            && self.groups[header.edge.group.0 as usize].multicasts_from(id)
        {
            let cargo =
                Cargo::Copy { group: header.edge.group.0, node: 0, part, piece: piece.clone() };
            let copy = Packet { at, to: at, bytes: bytes as u32, cargo };
            self.send(ready, Event::Hop, copy);
        }
        let aggregator = &mut self.aggregators[id.index()];
        let leaves_at = aggregator.engines.reply(&self.costs.node, ready, bytes as u32);
        let (to, cargo) = match aggregator.ports[port.0 as usize] {
            Peer::Member(member) => {
                let host = self.members[member.index()].host;
                (host, Cargo::ToMember { member, header, piece })
            }
            Peer::Node { aggregator, port } => {
                let vertex = self.aggregators[aggregator.index()].vertex;
                (vertex, Cargo::ToNode { aggregator, port, header, piece })
            }
        };
        self.send(leaves_at, Event::Emit, Packet { at, to, bytes: bytes as u32, cargo });
    }

    /// A switch of a multicast tree forwards a result to its members and to the next switches, all at
    /// once.
    pub(super) fn replicate(&mut self, id: PacketId) {
        let packet = self.packets.take(id);
        let Cargo::Copy { group, node, part, piece } = packet.cargo else {
            unreachable!("only multicast copies are replicated")
        };
        let now = self.events.now();
        for index in 0..self.groups[group as usize].copies(node).members.len() {
            let member = self.groups[group as usize].copies(node).members[index];
            let CopyEnd { host, header } = self.copy_for(member, part);
            let cargo = Cargo::ToMember { member, header, piece: piece.clone() };
            self.send_copy(now, packet.at, host, packet.bytes, cargo);
        }
        for index in 0..self.groups[group as usize].copies(node).below.len() {
            let next = self.groups[group as usize].copies(node).below[index];
            let vertex = self.groups[group as usize].copies(next).vertex;
            let cargo = Cargo::Copy { group, node: next, part, piece: piece.clone() };
            self.send_copy(now, packet.at, vertex, packet.bytes, cargo);
        }
    }

    fn copy_for(&self, member: MemberId, part: Part) -> CopyEnd {
        let known = &self.members[member.index()];
        CopyEnd {
            host: known.host,
            header: Header { edge: known.edge, message: Message::Result(part) },
        }
    }

    fn send_copy(
        &mut self,
        now: Picos,
        at: Vertex,
        to: Vertex,
        bytes: u32,
        cargo: Cargo<D::Piece>,
    ) {
        let id = self.packets.put(Packet { at, to, bytes, cargo });
        self.forward(id, now);
    }
}

/// Whether every member can use this copy of a result. One for a single member, or for the source of a
/// broadcast, lacks what others need.
fn is_for_all(part: &Part) -> bool {
    part.target == Target::All && (part.has_data || part.shape.elements() == 0)
}

/// The destination of a multicast copy, and its header there.
struct CopyEnd {
    host: Vertex,
    header: Header,
}
