//! What edges with datagrams need: offers, probes, repeats upward, acks and nacks.

use core::num::NonZeroU16;

use tributary_wire::frame::{Header, Message};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId, Sequence};

use super::outputs::Event;
use super::port::{PortId, Role};
use super::slot::Phase;
use super::slots::From;
use super::{FrameError, Node};
use crate::{Carrier, Time};

impl Node {
    /// Offers the parent in `group` to exchange datagrams, if this node takes any. To be called
    /// right after the install, if the link given to [`Node::install`] leads to a process of
    /// another host.
    pub fn offer_datagrams(&mut self, group: GroupId) {
        let Some(ours) = self.datagram_port else { return };
        let Some(found) = self.groups.get_mut(group.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let Some((port, header)) = found.header_to_parent(Message::Datagrams(Some(ours))) else {
            return;
        };
        if !found.upward.may_offer() {
            return;
        }
        found.upward.on_offering(self.datagram_segment_max_bytes);
        if !self.outputs.transmit(port, header, None) {
            // The port has room right after the install. If not, this edge has no datagrams.
            self.outputs.stats.dropped += 1;
        }
    }

    /// The port whose edge a datagram names, if its capability is right. The driver checks that it
    /// comes from the peer's address.
    #[must_use]
    pub fn port_of_datagram(&self, header: &Header) -> Option<PortId> {
        let edge = &header.edge;
        let group = self.groups.get(edge.group.0 as usize)?.as_ref()?;
        if edge.epoch != Epoch(group.epoch.0) {
            return None;
        }
        if matches!(header.message, Message::Request(_) | Message::Probe(_)) {
            let child = group.children.get(usize::from(edge.child.0))?;
            return child.port.filter(|_| child.capability == edge.capability);
        }
        let parent = group.parent.as_ref()?;
        let is_ours = parent.child == edge.child && parent.capability == edge.capability;
        is_ours.then_some(parent.port)
    }

    /// What datagrams of this node's edges show: a datagram with another capability has no port. There are new ones
    /// after [`Node::install`] alone.
    pub fn capabilities(&self) -> impl Iterator<Item = Capability> {
        self.groups.iter().flatten().flat_map(|group| {
            let children = group.children.iter().map(|child| child.capability);
            children.chain(group.parent.iter().map(|parent| parent.capability))
        })
    }

    /// A child takes datagrams, or not: answers whether this node does.
    pub(super) fn handle_offer(
        &mut self,
        port: PortId,
        group: GroupId,
        child: ChildIndex,
        theirs: Option<NonZeroU16>,
    ) {
        let ours = self.datagram_port.filter(|_| theirs.is_some());
        let answer = self.group_mut(group).header_to_child(child, Message::Datagrams(ours));
        if !self.outputs.transmit(port, answer, None) {
            // A child that offers again and again without reading the answers gets none.
            self.outputs.stats.dropped += 1;
            return;
        }
        if let (Some(datagram_port), Some(_)) = (theirs, ours) {
            self.outputs.report(Event::DatagramPeer { port, datagram_port });
        }
    }

    /// The parent takes datagrams, or not.
    pub(super) fn handle_answered_offer(
        &mut self,
        now: Time,
        group: GroupId,
        theirs: Option<NonZeroU16>,
    ) {
        let Some(port) = self.parent_port(group) else { return };
        if !self.group_mut(group).upward.is_offered() {
            return;
        }
        if let Some(datagram_port) = theirs {
            self.outputs.report(Event::DatagramPeer { port, datagram_port });
        }
        let was_waiting = self.group_mut(group).upward.is_waiting();
        let decided = self.group_mut(group).upward.on_answer(now, theirs);
        self.outputs.report_datagrams(port, decided);
        self.send_upward(now, group);
        self.update_repeat_timer(group, was_waiting);
    }

    /// Takes a datagram from the parent that is no result.
    pub(super) fn handle_parent_datagram(
        &mut self,
        now: Time,
        group: GroupId,
        message: Message,
    ) -> Result<(), FrameError> {
        let Some(port) = self.parent_port(group) else { return Ok(()) };
        let was_waiting = self.group_mut(group).upward.is_waiting();
        let upward = &mut self.group_mut(group).upward;
        let mut decided = None;
        upward.on_datagram(now);
        match message {
            Message::Probed(attempt) => decided = upward.on_probed(now, attempt),
            Message::Ack { sequence, attempt } => upward.on_ack(now, sequence, attempt),
            Message::Nack { sequence } => upward.on_nack(sequence),
            Message::Joined
            | Message::Abort(_)
            | Message::Datagrams(_)
            | Message::StreamGrant(_)
            | Message::ChunkResult(_) => {
                return Err(FrameError::WrongCarrier);
            }
            _ => return Err(FrameError::WrongDirection),
        }
        self.outputs.report_datagrams(port, decided);
        self.send_upward(now, group);
        self.update_repeat_timer(group, was_waiting);
        Ok(())
    }

    /// Sends the parent the probe or the repeats that are due.
    pub(super) fn send_upward(&mut self, now: Time, id: GroupId) {
        if let Some(probe) = self.group_mut(id).upward.probe() {
            let Some((port, header)) = self.group_mut(id).header_to_parent(probe) else { return };
            self.outputs.transmit_datagram(port, header, None);
            self.group_mut(id).upward.on_probe_sent(now);
        }
        while let Some(repeat) = self.group_mut(id).upward.next_repeat() {
            let group = self.group_mut(id);
            group.upward.on_repeated(now, repeat);
            let index = group.slots.index_of(repeat.sequence);
            let slot = &group.slots[index];
            let Some(mut part) = slot.part.filter(|part| part.sequence == repeat.sequence) else {
                continue;
            };
            if slot.phase != Phase::Forwarded {
                continue;
            }
            part.has_data = slot.has_data;
            part.retransmit.attempt = repeat.attempt;
            let body = part.has_data.then(|| group.slots.accumulator(index));
            let Some((port, header)) = group.header_to_parent(Message::Request(part)) else {
                return;
            };
            self.outputs.stats.repeated += 1;
            match repeat.carrier {
                Carrier::Datagram | Carrier::Multicast => {
                    self.outputs.transmit_datagram(port, header, body);
                }
                Carrier::Link => {
                    // If a link takes nothing more, it fails in the end, and the group with it.
                    let is_queued = self.outputs.transmit(port, header, body);
                    self.outputs.stats.dropped += u64::from(!is_queued);
                }
            }
        }
    }

    /// Sends a child a datagram without payload.
    pub(super) fn reply(&mut self, group: GroupId, child: ChildIndex, message: Message) {
        let header = self.group_mut(group).header_to_child(child, message);
        if let Some(port) = self.group_mut(group).children[usize::from(child.0)].port {
            self.outputs.transmit_datagram(port, header, None);
        }
    }

    /// Notes that a request has come. If it came by datagram, nacks every earlier one that has not
    /// come.
    pub(super) fn send_nacks(&mut self, group: GroupId, from: From, sequence: Sequence) {
        let slots = self.group_mut(group).slots.len() as u32;
        let child = &mut self.group_mut(group).children[usize::from(from.child.0)];
        let first = child.next;
        let gap = sequence.distance_from(first);
        if gap >= 1 << 31 {
            // It had been nacked itself.
            return;
        }
        child.next = sequence.next();
        // Requests over the link can be overtaken, but not lost.
        if from.carrier == Carrier::Link || gap > slots {
            return;
        }
        for offset in 0..gap {
            let sequence = Sequence(first.0.wrapping_add(offset));
            self.outputs.stats.nacks += 1;
            self.reply(group, from.child, Message::Nack { sequence });
        }
    }

    /// When the next request upward is to be repeated.
    pub(super) fn next_repeat_at(&self) -> Option<Time> {
        if self.unanswered_groups == 0 { None } else { self.repeat_at }
    }

    /// Repeats what is due upward.
    pub(super) fn repeat_due(&mut self, now: Time) {
        if self.next_repeat_at().is_none_or(|due| now < due) {
            return;
        }
        self.repeat_at = None;
        for index in 0..self.groups.len() {
            let Some(group) = &mut self.groups[index] else { continue };
            if !group.upward.is_waiting() {
                continue;
            }
            let id = group.id;
            let decided = group.upward.handle_timeout(now);
            if let Some(port) = self.parent_port(id) {
                self.outputs.report_datagrams(port, decided);
            }
            self.send_upward(now, id);
            self.update_repeat_timer(id, true);
        }
    }

    /// Updates how many groups wait for an answer by datagram, and the earliest timer.
    pub(super) fn update_repeat_timer(&mut self, group: GroupId, was_waiting: bool) {
        let upward = &self.group_mut(group).upward;
        let (is_waiting, due) = (upward.is_waiting(), upward.poll_timeout());
        match (was_waiting, is_waiting) {
            (false, true) => self.unanswered_groups += 1,
            (true, false) => self.unanswered_groups -= 1,
            _ => {}
        }
        if self.unanswered_groups == 0 {
            self.repeat_at = None;
        } else {
            self.repeat_at = [self.repeat_at, due].into_iter().flatten().min();
        }
    }

    fn parent_port(&self, group: GroupId) -> Option<PortId> {
        let port = self.groups[group.0 as usize].as_ref()?.parent.as_ref()?.port;
        debug_assert_eq!(self.outputs.role(port), Role::Parent { group });
        Some(port)
    }
}
