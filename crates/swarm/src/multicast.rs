//! Results that roots send to multicast addresses, their receivers and their loss.
//!
//! Every receiver's copy is lost, doubled, delayed or damaged independently. Some come so late that
//! another group may have the address by then.

use rand::RngExt;
use tributary_protocol::Carrier;
use tributary_protocol::node::Transmit;
use tributary_protocol_testing::frames;
use tributary_wire::GroupId;
use tributary_wire::control::GroupInstall;
use tributary_wire::frame::Message;

use super::agenda::{End, Item, Listener};
use super::datagram_store::Flying;
use super::link::Holder;
use super::nodes::brief;
use super::scenario::DatagramPlan;
use super::verdict::Violation;
use super::world::{Incoming, World};

/// Results, in parts of a thousand, that are delivered to their address once more, much later.
const STRAYS: u32 = 30;

/// How much later.
const STRAY_NS_MAX: u64 = 20_000_000;

impl World<'_> {
    /// Lets an aggregator send or receive a group's results by multicast, as the manager ordered.
    pub(super) fn use_multicast(&mut self, node: u32, order: &GroupInstall) {
        let segment_max_bytes = self.datagram_segment_max_bytes();
        let Some(grant) = &order.multicast else { return };
        let host = self.node(node);
        // An aggregator that sends no multicast may have members below it that receive it.
        let segment_max_bytes = if host.takes_datagrams { segment_max_bytes } else { 0 };
        host.machine.use_multicast(order.group, grant.capability, segment_max_bytes);
    }

    /// Subscribes a member that takes datagrams to its group's multicast.
    pub(super) fn subscribe_multicast(&mut self, member: u32) {
        let Some(grant) = self.run_of(member).grant.multicast.clone() else { return };
        let Some(plan) = self.scenario.network.datagrams.and_then(|plan| plan.multicast) else {
            return;
        };
        self.member(member).endpoint.subscribe_multicast(grant.capability);
        let is_without_multicast = self.happens(plan.without_multicast);
        self.member(member).is_subscribed = !is_without_multicast;
    }

    /// Sends a result to a group's address.
    pub(super) fn multicast(&mut self, node: u32, group: GroupId, transmit: &Transmit) {
        let mut bytes = self.buffer();
        bytes.extend_from_slice(&transmit.header.encode());
        let host = &self.nodes[node as usize];
        if let Some(place) = transmit.body {
            host.memory.append(place, transmit.header.payload_bytes(), &mut bytes);
        }
        self.multicast_frame(node, group, bytes);
    }

    pub(super) fn multicast_frame(&mut self, node: u32, group: GroupId, mut bytes: Vec<u8>) {
        let plan = self.scenario.network.datagrams.expect("the root takes datagrams");
        self.seal(&mut bytes);
        self.frames += 1;
        self.trace.note_number(self.now ^ u64::from(node) << 48 ^ 1 << 45);
        self.trace.note_bytes(&bytes);
        let from = self.node_machine(node);
        for listener in self.listeners(group) {
            let machine = self.machine_of(listener);
            if self.cut_until(from, machine).is_none() {
                self.multicast_to(listener, plan, &bytes);
            }
        }
        if self.happens(STRAYS) {
            let at = self.now + self.random.random_range(1..STRAY_NS_MAX);
            let place = self.datagrams.add(bytes, false);
            self.agenda.put(at, Item::Stray { group: group.0, place });
        } else {
            self.recycle(bytes);
        }
    }

    fn multicast_to(&mut self, listener: Listener, plan: DatagramPlan, bytes: &[u8]) {
        if self.happens(plan.lost) {
            return;
        }
        for _ in 0..=usize::from(self.happens(plan.doubled)) {
            let mut copy = self.buffer();
            copy.extend_from_slice(bytes);
            let is_corrupted = self.happens(plan.corrupted);
            if is_corrupted {
                let bit = self.random.random();
                super::inject::flip(&mut copy, bit);
            }
            let at = self.now + self.delay_ns() + self.random.random_range(0..plan.straggle_ns_max);
            let place = self.datagrams.add(copy, is_corrupted);
            self.agenda.put(at, Item::Multicast { listener, place });
        }
    }

    /// Everybody at the address gets a forged frame too.
    pub(super) fn forge_multicast(&mut self, group: GroupId, bytes: &[u8]) {
        for listener in self.listeners(group) {
            let at = self.now + self.delay_ns();
            let place = self.datagrams.add(bytes.to_vec(), true);
            self.agenda.put(at, Item::Multicast { listener, place });
        }
    }

    /// The receivers at a group's address now. Groups with the same number have the same address.
    fn listeners(&self, group: GroupId) -> Vec<Listener> {
        let listens = |index: &u32| {
            let member = &self.members[*index as usize];
            let run = &self.runs[member.run as usize];
            let has_address = run.grant.group == group && run.grant.multicast.is_some();
            member.is_subscribed && !member.is_over() && has_address
        };
        let members = (0..self.members.len() as u32).filter(listens).map(Listener::Member);
        let multicast = self.scenario.network.datagrams.and_then(|plan| plan.multicast);
        let do_nodes_subscribe = multicast.is_some_and(|plan| plan.nodes_subscribe);
        let is_subscribed = |index: &u32| {
            let host = &self.nodes[*index as usize];
            do_nodes_subscribe
                && host.is_alive
                && host.takes_datagrams
                && host.installed.iter().any(|it| it.held.group == group)
        };
        let nodes = (0..self.nodes.len() as u32)
            .filter(is_subscribed)
            .map(|node| Listener::Node { node, life: self.nodes[node as usize].life });
        members.chain(nodes).collect()
    }

    fn machine_of(&self, listener: Listener) -> u32 {
        match listener {
            Listener::Member(member) => self.members[member as usize].host,
            Listener::Node { node, .. } => self.node_machine(node),
        }
    }

    pub(super) fn multicast_arrives(&mut self, listener: Listener, place: u32) {
        let Flying { bytes, is_forged } = self.datagrams.take(place);
        self.deliver_multicast(listener, &bytes, is_forged);
        self.recycle(bytes);
    }

    pub(super) fn stray_arrives(&mut self, group: u32, place: u32) {
        let Flying { bytes, is_forged } = self.datagrams.take(place);
        for listener in self.listeners(GroupId(group)) {
            self.deliver_multicast(listener, &bytes, is_forged);
        }
        self.recycle(bytes);
    }

    fn deliver_multicast(&mut self, listener: Listener, bytes: &[u8], is_forged: bool) {
        match listener {
            Listener::Member(member) => {
                let Some(link) = self.members[member as usize].link else { return };
                let (to, carrier) = (End::Lower, Carrier::Multicast);
                if self.links[link as usize].is_open(to) {
                    self.member_takes(member, Incoming { link, to, carrier, bytes, is_forged });
                }
            }
            Listener::Node { node, life } => {
                if self.nodes[node as usize].life == life && self.nodes[node as usize].is_alive {
                    self.deliver_multicast_to_node(node, bytes, is_forged);
                }
            }
        }
    }

    fn deliver_multicast_to_node(&mut self, node: u32, bytes: &[u8], is_forged: bool) {
        let Some(Ok((header, payload))) = self.unseal(bytes).map(frames::decode) else { return };
        let edge = header.edge;
        let is_root = self.upward_link(node, edge.group).is_none();
        let time = self.time_at(self.node_machine(node));
        let host = &mut self.nodes[node as usize];
        let taken = host.machine.handle_multicast(time, &header, payload, &mut host.memory);
        if let (Some(kernel_path), Message::Result(part)) = (&host.kernel_path, header.message) {
            kernel_path.handover.note_multicast(&host.machine, edge.group, part.sequence);
        }
        self.restless_nodes.push(node);
        if taken.is_err() {
            return;
        }
        if is_forged && !is_root {
            let what = brief(&header);
            self.report(None, Violation::ForgeryAccepted { what });
        }
        if let Some(link) = self.upward_link(node, edge.group) {
            self.link(link).windows.on_taken(&header.message);
        }
    }

    /// The link from an aggregator to its parent in a group that it serves.
    fn upward_link(&self, node: u32, group: GroupId) -> Option<u32> {
        let host = &self.nodes[node as usize];
        let key = &host.installed.iter().find(|it| it.held.group == group)?.key;
        let is_it = |(link, end): &(u32, End)| {
            let link = &self.links[*link as usize];
            let is_here =
                matches!(link.holder(End::Lower), Holder::Node { node: at, .. } if at == node);
            *end == End::Lower
                && is_here
                && link.edge.as_ref().is_some_and(|edge| edge.group == *key)
        };
        host.links().find(is_it).map(|(link, _)| link)
    }
}
