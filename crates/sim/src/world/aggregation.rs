//! What aggregators do: they take frames, and send what the protocol makes of them.

use super::aggregator::{Aggregator, Engines, Peer, Port};
use super::cores::Runner;
use super::event::{Event, Way, time_at};
use super::frames::Frame;
use super::ids::{AggregatorId, ProcessId};
use super::multicast::Listener;
use super::outcome::RunError;
use super::packet::{Cargo, Packet};
use super::payload::Data;
use super::state::World;
use crate::engine::Picos;
use crate::fabric::Vertex;
use tributary_protocol::Carrier;
use tributary_protocol::node::{FrameError, Node, NodeConfig, PortId, Transmit};
use tributary_wire::ChildIndex;
use tributary_wire::frame::{Header, Message, Part, Target};

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
            timer_at: None,
            core_of: None,
        });
        id
    }

    /// Lets every aggregation node on the host of a process take turns with it on its core.
    pub fn share_core(&mut self, process: ProcessId) {
        let host = self.host_of(process);
        for aggregator in self.aggregators.iter_mut().filter(|node| node.vertex == host) {
            aggregator.core_of = Some(process);
        }
    }

    pub(super) fn node_receives(
        &mut self,
        seen_at: Picos,
        id: AggregatorId,
        port: PortId,
        frame: Frame<D::Piece>,
        way: Way,
    ) {
        let (is_request, is_result) = match frame.message {
            Message::Request(_) | Message::Chunk(_) => (true, false),
            Message::Result(_) => (false, true),
            _ => (false, false),
        };
        let ports = &self.aggregators[id.index()].ports;
        let header = Header { edge: ports[port.0 as usize].edge, message: frame.message };
        // The engine forwards a result, but reads every byte of a contribution.
        let reduced = if is_request { header.payload_bytes() as u32 } else { 0 };
        let costs = &self.costs.node;
        let program = costs.program_for(way.carrier, header.payload_bytes() as u32);
        let (take, latency) = match program {
            Some(program) => (program.take, Picos::ZERO),
            None if way.is_local => (costs.take_local, costs.latency),
            None => (costs.take, costs.latency),
        };
        let cost = take.of(reduced);
        let ready = self.node_takes(seen_at, id, cost) + latency;
        self.node_handles(ready, id, port, frame, way.carrier);
        if is_result {
            self.resume_deferred(ready, id);
        }
        while self.aggregators[id.index()].node.poll_event().is_some() {}
    }

    /// Occupies the aggregator's engine for `cost` with a packet that can be seen at `seen_at`. Returns when it is
    /// reduced.
    fn node_takes(&mut self, seen_at: Picos, id: AggregatorId, cost: Picos) -> Picos {
        let Aggregator { engines, core_of, .. } = &mut self.aggregators[id.index()];
        let core_free_at =
            core_of.map_or(Picos::ZERO, |process| self.processes[process.index()].free_at);
        let earliest = seen_at.max(engines.take_free_at).max(core_free_at);
        let turn = self.cores.turn(Runner::Node(id), earliest);
        let reduced_at = engines.take(&self.costs.node, turn.start, cost);
        if let Some(process) = core_of {
            self.processes[process.index()].free_at = reduced_at;
        }
        self.cores.end(turn, reduced_at);
        reduced_at
    }

    /// Occupies the aggregator's engine for `cost` with a copy of a result that is there at `ready`. Returns when it
    /// leaves.
    pub(super) fn node_replies(&mut self, ready: Picos, id: AggregatorId, cost: Picos) -> Picos {
        let Aggregator { engines, core_of, .. } = &mut self.aggregators[id.index()];
        let core_free_at =
            core_of.map_or(Picos::ZERO, |process| self.processes[process.index()].free_at);
        let earliest = ready.max(engines.reply_free_at).max(core_free_at);
        let turn = self.cores.turn(Runner::Node(id), earliest);
        let leaves_at = engines.reply(&self.costs.node, turn.start, cost);
        if let Some(process) = core_of {
            self.processes[process.index()].free_at = engines.reply_free_at;
        }
        self.cores.end(turn, engines.reply_free_at);
        leaves_at
    }

    /// Lets the machine handle a frame that its engine has taken.
    ///
    /// A request may arrive before its slot is free: a multicast result overtakes the reliable one, and the
    /// member completes the operation before its aggregation node does. Such a request waits.
    fn node_handles(
        &mut self,
        ready: Picos,
        id: AggregatorId,
        port: PortId,
        frame: Frame<D::Piece>,
        carrier: Carrier,
    ) {
        let now = time_at(self.events.now());
        let Aggregator { node, arenas, ports, .. } = &mut self.aggregators[id.index()];
        let edge = Self::edge_of(ports[port.0 as usize].edge, carrier);
        let header = Header { edge, message: frame.message };
        let payload = D::bytes(&frame.piece, header.payload_bytes());
        let handled = match carrier {
            Carrier::Multicast => node.handle_multicast(now, &header, payload, arenas),
            Carrier::Link | Carrier::Datagram => {
                node.handle_frame(now, port, carrier, &header, payload, arenas)
            }
        };
        match handled {
            Ok(()) => self.drain_node(ready, id),
            // What a datagram says is dropped if anything is wrong with it.
            Err(_) if carrier != Carrier::Link => self.drain_node(ready, id),
            Err(FrameError::OutsideWindow { .. })
                if self.groups[header.edge.group.0 as usize].has_multicast() =>
            {
                self.aggregators[id.index()].deferred.push((port, frame));
            }
            Err(fault) => self.fault = Some(RunError::Node { node: id.0, fault }),
        }
    }

    /// A result has freed a slot: handles the requests that waited for one.
    fn resume_deferred(&mut self, ready: Picos, id: AggregatorId) {
        for (port, frame) in core::mem::take(&mut self.aggregators[id.index()].deferred) {
            self.node_handles(ready, id, port, frame, Carrier::Link);
        }
    }

    /// Sends the machine's frames, one copy after the other.
    pub(super) fn drain_node(&mut self, ready: Picos, id: AggregatorId) {
        // First, because all that listen need it.
        while let Some((group, transmit)) = self.aggregators[id.index()].node.poll_multicast() {
            self.node_multicasts(ready, id, group, &transmit);
        }
        while let Some(port) = self.aggregators[id.index()].node.poll_ready() {
            while let Some(transmit) = self.aggregators[id.index()].node.peek_transmit(port) {
                self.aggregators[id.index()].node.pop_transmit(port);
                self.node_sends(ready, id, port, &transmit);
            }
        }
        self.set_node_timer(id);
    }

    fn node_sends(&mut self, ready: Picos, id: AggregatorId, port: PortId, transmit: &Transmit) {
        let Transmit { header, carrier, .. } = *transmit;
        let bytes = header.payload_bytes();
        let aggregator = &self.aggregators[id.index()];
        let piece = match transmit.body {
            Some(place) => D::read(&aggregator.arenas, place, bytes),
            None => D::Piece::default(),
        };
        let at = aggregator.vertex;
        let Port { peer, edge } = aggregator.ports[port.0 as usize];
        debug_assert_eq!(header.edge, edge, "a link carries one edge");
        let frame = self.frames.add(header.message, piece);
        let bytes = bytes as u32;
        if let Message::Result(part) = header.message
            && edge.child == ChildIndex(0)
            && is_for_all(&part)
            && self.groups[edge.group.0 as usize].multicasts_from(id)
        {
            let frame = self.frames.share(frame);
            let cargo = Cargo::Copy { group: edge.group.0, node: 0, frame, is_last: true };
            self.events.schedule(ready, Event::Emit(Packet { from: at, at, to: at, bytes, cargo }));
        }
        let (to, cargo) = match peer {
            Peer::Member { member, host } => {
                (host, Cargo::ToMember { member, frame, carrier, is_last: true })
            }
            Peer::Node { aggregator, port, vertex } => {
                (vertex, Cargo::ToNode { aggregator, port, frame, carrier, is_last: true })
            }
        };
        let packet = Packet { from: at, at, to, bytes, cargo };
        let costs = &self.costs.node;
        let cost = match costs.program_for(carrier, bytes) {
            Some(program) => program.reply,
            None if packet.is_local() => costs.reply_local.of(bytes),
            None => costs.reply.of(bytes),
        };
        let leaves_at = self.node_replies(ready, id, cost);
        self.events.schedule(leaves_at, Event::Emit(packet));
    }

    /// A switch of a multicast tree forwards a result to its members and to the next switches, all at
    /// once.
    pub(super) fn replicate(&mut self, packet: Packet) {
        let Cargo::Copy { group, node, frame, is_last } = packet.cargo else {
            unreachable!("only multicast copies are replicated")
        };
        let to_address = self.groups[group as usize].has_listeners();
        let carrier = if to_address { Carrier::Multicast } else { Carrier::Link };
        for index in 0..self.groups[group as usize].copies(node).listeners.len() {
            let (listener, host) = self.groups[group as usize].copies(node).listeners[index];
            let frame = self.frames.share(frame);
            let cargo = match listener {
                Listener::Member(member) => Cargo::ToMember { member, frame, carrier, is_last },
                Listener::Node(aggregator, port) => {
                    Cargo::ToNode { aggregator, port, frame, carrier, is_last }
                }
            };
            self.send_copy(packet, host, cargo);
        }
        for index in 0..self.groups[group as usize].copies(node).below.len() {
            let next = self.groups[group as usize].copies(node).below[index];
            let vertex = self.groups[group as usize].copies(next).vertex;
            let cargo = Cargo::Copy { group, node: next, frame: self.frames.share(frame), is_last };
            self.send_copy(packet, vertex, cargo);
        }
        self.frames.take(frame);
    }

    fn send_copy(&mut self, copied: Packet, to: Vertex, cargo: Cargo) {
        self.forward(Packet { from: copied.at, to, cargo, ..copied }, self.events.now());
    }
}

/// Whether every member can use this copy of a result. One for a single member, or for the source of a
/// broadcast, lacks what others need.
fn is_for_all(part: &Part) -> bool {
    part.target == Target::All && (part.has_data || part.shape.elements() == 0)
}
