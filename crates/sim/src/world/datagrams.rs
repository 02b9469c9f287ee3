//! How frames go in datagrams and to multicast addresses, and when they are repeated.

use super::event::{Event, due_at, time_at};
use super::group::CopyNode;
use super::ids::{AggregatorId, MemberId};
use super::multicast::{DatagramTerms, Listener};
use super::packet::{Cargo, Packet};
use super::payload::Data;
use super::state::World;
use crate::engine::Picos;
use crate::fabric::{Vertex, Wiring};
use core::num::NonZeroU16;
use tributary_protocol::Carrier;
use tributary_protocol::node::Transmit;
use tributary_wire::frame::{EVERYONE, Edge};
use tributary_wire::{Capability, GroupId};

/// The port at which everybody takes datagrams: addresses are not modelled.
const PORT: NonZeroU16 = NonZeroU16::new(7474).unwrap();

impl<D: Data> World<D> {
    /// Whether results of groups that ask for it go by the product's multicast, and not by that of switches with
    /// aggregators in them.
    #[must_use]
    pub fn has_listeners(&self) -> bool {
        self.datagrams.is_some_and(|terms| terms.has_multicast) && self.costs.node.has_one_thread
    }

    /// How a group uses datagrams; none if it doesn't.
    fn terms_of(&self, group: GroupId) -> Option<DatagramTerms> {
        let has_multicast = self.groups[group.0 as usize].has_listeners();
        let has_program = self.costs.node.program.is_some();
        self.datagrams.filter(|terms| terms.is_lossy || has_multicast || has_program)
    }

    /// Lets an aggregator's part of a group, just installed, use datagrams.
    pub(super) fn use_datagrams(&mut self, id: AggregatorId, edge: Edge, parent: Option<Vertex>) {
        let Some(terms) = self.terms_of(edge.group) else { return };
        self.uses_datagrams = true;
        let aggregator = &mut self.aggregators[id.index()];
        aggregator.node.take_datagrams(PORT, terms.segment_max_bytes);
        if self.groups[edge.group.0 as usize].has_listeners() {
            let capability = multicast_edge(edge).capability;
            aggregator.node.use_multicast(edge.group, capability, terms.segment_max_bytes);
        }
        if parent.is_some_and(|parent| parent != aggregator.vertex) {
            aggregator.node.offer_datagrams(edge.group);
        }
    }

    /// Lets a new member use datagrams, unless its aggregator is on its host.
    pub(super) fn offer_datagrams(&mut self, id: MemberId, edge: Edge, is_local: bool) {
        let Some(terms) = self.terms_of(edge.group) else { return };
        let has_multicast = self.groups[edge.group.0 as usize].has_listeners();
        let endpoint = &mut self.members[id.index()].endpoint;
        if let Some(short) = terms.short_vectors(has_multicast) {
            endpoint.cut_short_vectors(short);
        }
        if is_local {
            return;
        }
        endpoint.offer_datagrams(PORT, terms.segment_max_bytes);
        if has_multicast {
            endpoint.subscribe_multicast(multicast_edge(edge).capability);
        }
    }

    /// The edge of a frame that came this way over a link's end.
    pub(super) fn edge_of(edge: Edge, carrier: Carrier) -> Edge {
        if carrier == Carrier::Multicast { multicast_edge(edge) } else { edge }
    }

    /// A root sends a result to its group's address.
    pub(super) fn node_multicasts(
        &mut self,
        ready: Picos,
        id: AggregatorId,
        group: GroupId,
        transmit: &Transmit,
    ) {
        let bytes = transmit.header.payload_bytes();
        let aggregator = &self.aggregators[id.index()];
        let at = aggregator.vertex;
        let piece = match transmit.body {
            Some(place) => D::read(&aggregator.arenas, place, bytes),
            None => D::Piece::default(),
        };
        let wiring = self.network.wiring();
        self.groups[group.0 as usize].plant(|listeners| routes(wiring, at, listeners));
        let bytes = bytes as u32;
        let frame = self.frames.add(transmit.header.message, piece);
        let cargo = Cargo::Copy { group: group.0, node: 0, frame, is_last: true };
        let costs = &self.costs.node;
        let program = costs.program_for(Carrier::Multicast, bytes);
        let cost = program.map_or_else(|| costs.reply.of(bytes), |program| program.reply);
        let leaves_at = self.node_replies(ready, id, cost);
        let packet = Packet { from: at, at, to: at, bytes, cargo };
        self.events.schedule(leaves_at, Event::Emit(packet));
    }

    /// The adapter of a root's host takes a result to an address.
    pub(super) fn post_multicast(&mut self, packet: Packet) {
        let now = self.events.now();
        for (packet, fetched_bytes) in self.packets_of(packet) {
            let adapter = &mut self.adapters[packet.at.0 as usize];
            let ready = adapter.transmit(&self.costs, now, fetched_bytes);
            self.events.schedule(ready, Event::Hop(packet));
        }
    }

    /// Repeats what is due of a member's.
    pub(super) fn member_timer(&mut self, id: MemberId) {
        let now = self.events.now();
        let member = &mut self.members[id.index()];
        if member.timer_at != Some(now) {
            return;
        }
        member.timer_at = None;
        let time = time_at(now);
        if member.endpoint.poll_timeout().is_some_and(|due| due <= time) {
            member.endpoint.handle_timeout(time);
        }
        self.drain_member(id, now);
    }

    /// Repeats what is due of an aggregator's.
    pub(super) fn node_timer(&mut self, id: AggregatorId) {
        let now = self.events.now();
        let aggregator = &mut self.aggregators[id.index()];
        if aggregator.timer_at != Some(now) {
            return;
        }
        aggregator.timer_at = None;
        let time = time_at(now);
        if aggregator.node.poll_timeout().is_some_and(|due| due <= time) {
            aggregator.node.handle_timeout(time);
        }
        self.drain_node(now, id);
    }

    /// Sets a member's timer, if an earlier one is due than before.
    pub(super) fn set_member_timer(&mut self, id: MemberId) {
        let now = self.events.now();
        let member = &mut self.members[id.index()];
        let Some(due) = member.endpoint.poll_timeout() else { return };
        let at = due_at(due, now);
        if member.timer_at.is_none_or(|set| at < set) {
            member.timer_at = Some(at);
            self.events.schedule(at, Event::MemberTimer(id));
        }
    }

    /// Sets an aggregator's timer, if an earlier one is due than before. Without datagrams it has nothing to repeat.
    pub(super) fn set_node_timer(&mut self, id: AggregatorId) {
        let now = self.events.now();
        let aggregator = &mut self.aggregators[id.index()];
        let due = aggregator.node.poll_timeout().filter(|_| self.uses_datagrams);
        let Some(due) = due else { return };
        let at = due_at(due, now);
        if aggregator.timer_at.is_none_or(|set| at < set) {
            aggregator.timer_at = Some(at);
            self.events.schedule(at, Event::NodeTimer(id));
        }
    }
}

/// What results to the address of the group of `edge` show.
fn multicast_edge(edge: Edge) -> Edge {
    let capability = Capability::from_bytes((u128::from(edge.group.0) | 1 << 127).to_le_bytes());
    Edge { child: EVERYONE, capability, ..edge }
}

/// The links from a root to the listeners of its group, as a tree. A listener on the root's host needs none: it has a
/// link through memory.
fn routes(wiring: &Wiring, root: Vertex, listeners: &[(Listener, Vertex)]) -> Vec<CopyNode> {
    let mut copies = vec![CopyNode::new(root)];
    for &(listener, host) in listeners.iter().filter(|(_, host)| *host != root) {
        let path = wiring.path(root, host);
        let mut from = 0;
        for &vertex in &path[1..path.len() - 1] {
            let known = copies.iter().position(|copy| copy.vertex == vertex);
            from = known.unwrap_or_else(|| {
                copies.push(CopyNode::new(vertex));
                let last = copies.len() - 1;
                copies[from].below.push(last as u32);
                last
            });
        }
        copies[from].listeners.push((listener, host));
    }
    copies
}
