//! What only datagrams need: offers and probes, repeats upward, and signs that spare repeats.

use core::num::NonZeroU16;

use tributary_wire::frame::{Header, Message};
use tributary_wire::{ChildIndex, Epoch, GroupId, Sequence};

use super::slot::Phase;
use super::slots::From;
use super::{Event, FrameError, Node, PortId, Role};
use crate::{Carrier, Reach, Time};

impl Node {
    /// Offers the parent in `group` to exchange datagrams, if this node takes any and the link that
    /// [`Node::install`] was given leads to another host's process. Right after the install.
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
        if !self.transmit(port, header, None) {
            // Can't be right after the install; then there are no datagrams on this edge.
            self.stats.dropped += 1;
        }
    }

    /// The port that a datagram belongs to: the edge's that it names, if its capability is right.
    /// Whether it comes from the peer's address is for the driver to check.
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

    /// A child takes datagrams: so do we, or not.
    pub(super) fn handle_offer(
        &mut self,
        port: PortId,
        group: GroupId,
        child: ChildIndex,
        theirs: Option<NonZeroU16>,
    ) {
        let ours = self.datagram_port.filter(|_| theirs.is_some());
        let answer = self.group_mut(group).header_to_child(child, Message::Datagrams(ours));
        if !self.transmit(port, answer, None) {
            // Whoever offers again and again and doesn't read the answers gets none.
            self.stats.dropped += 1;
            return;
        }
        if let (Some(datagram_port), Some(_)) = (theirs, ours) {
            self.events.push_back(Event::DatagramPeer { port, datagram_port });
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
        self.events.extend(theirs.map(|datagram_port| Event::DatagramPeer { port, datagram_port }));
        let was_asking = self.group_mut(group).upward.is_waiting();
        let decided = self.group_mut(group).upward.on_answer(now, theirs);
        self.decide(port, decided);
        self.send_upward(now, group);
        self.note_asking(group, was_asking);
    }

    /// Takes what the parent says by datagram beside results.
    pub(super) fn handle_sign(
        &mut self,
        now: Time,
        group: GroupId,
        message: Message,
    ) -> Result<(), FrameError> {
        let Some(port) = self.parent_port(group) else { return Ok(()) };
        let was_asking = self.group_mut(group).upward.is_waiting();
        let upward = &mut self.group_mut(group).upward;
        let mut decided = None;
        upward.on_heard(now);
        match message {
            Message::Probed(attempt) => decided = upward.on_probed(now, attempt),
            Message::Held { sequence, attempt } => upward.on_held(now, sequence, attempt),
            Message::Missing { sequence } => upward.on_missing(sequence),
            Message::Joined
            | Message::Abort(_)
            | Message::Datagrams(_)
            | Message::StreamTurn(_)
            | Message::ChunkResult(_) => {
                return Err(FrameError::WrongCarrier);
            }
            _ => return Err(FrameError::WrongDirection),
        }
        self.decide(port, decided);
        self.send_upward(now, group);
        self.note_asking(group, was_asking);
        Ok(())
    }

    /// Sends the parent the probe or the repeats that are due.
    pub(super) fn send_upward(&mut self, now: Time, id: GroupId) {
        if let Some(probe) = self.group_mut(id).upward.probe() {
            let Some((port, header)) = self.group_mut(id).header_to_parent(probe) else { return };
            self.transmit_datagram(port, header, None);
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
            part.trail.attempt = repeat.attempt;
            let body = part.has_data.then(|| group.slots.accumulator(index));
            let Some((port, header)) = group.header_to_parent(Message::Request(part)) else {
                return;
            };
            self.stats.repeated += 1;
            match repeat.carrier {
                Carrier::Datagram | Carrier::Multicast => {
                    self.transmit_datagram(port, header, body);
                }
                Carrier::Link => {
                    // A link that takes nothing more fails in the end, and with it the group.
                    let is_queued = self.transmit(port, header, body);
                    self.stats.dropped += u64::from(!is_queued);
                }
            }
        }
    }

    /// Tells a child something by datagram.
    pub(super) fn reply(&mut self, group: GroupId, child: ChildIndex, message: Message) {
        let header = self.group_mut(group).header_to_child(child, message);
        if let Some(port) = self.group_mut(group).children[usize::from(child.0)].port {
            self.transmit_datagram(port, header, None);
        }
    }

    /// Takes note of a request that has come; if it is a datagram, its sender is told which of
    /// those before it have not.
    pub(super) fn report_missing(&mut self, group: GroupId, from: From, sequence: Sequence) {
        let slots = self.group_mut(group).slots.len() as u32;
        let child = &mut self.group_mut(group).children[usize::from(from.child.0)];
        let first = child.next;
        let gap = sequence.distance_from(first);
        if gap >= 1 << 31 {
            // One that was missing itself.
            return;
        }
        child.next = sequence.next();
        // Requests over the link can be overtaken, but not lost.
        if from.carrier == Carrier::Link || gap > slots {
            return;
        }
        for offset in 0..gap {
            let sequence = Sequence(first.0.wrapping_add(offset));
            self.stats.missing += 1;
            self.reply(group, from.child, Message::Missing { sequence });
        }
    }

    /// When one of the requests upward is to be repeated.
    pub(super) fn next_ask(&self) -> Option<Time> {
        if self.asking == 0 { None } else { self.ask_again_at }
    }

    /// Repeats what is due upward.
    pub(super) fn ask_again(&mut self, now: Time) {
        if self.next_ask().is_none_or(|due| now < due) {
            return;
        }
        self.ask_again_at = None;
        for index in 0..self.groups.len() {
            let Some(group) = &mut self.groups[index] else { continue };
            if !group.upward.is_waiting() {
                continue;
            }
            let id = group.id;
            let decided = group.upward.handle_timeout(now);
            if let Some(port) = self.parent_port(id) {
                self.decide(port, decided);
            }
            self.send_upward(now, id);
            self.note_asking(id, true);
        }
    }

    /// Keeps account of how many groups wait for an answer by datagram, and of the earliest timer.
    pub(super) fn note_asking(&mut self, group: GroupId, was_asking: bool) {
        let upward = &self.group_mut(group).upward;
        let (is_asking, due) = (upward.is_waiting(), upward.poll_timeout());
        match (was_asking, is_asking) {
            (false, true) => self.asking += 1,
            (true, false) => self.asking -= 1,
            _ => {}
        }
        if self.asking == 0 {
            self.ask_again_at = None;
        } else {
            self.ask_again_at = [self.ask_again_at, due].into_iter().flatten().min();
        }
    }

    pub(super) fn decide(&mut self, port: PortId, decided: Option<Reach>) {
        let Some(reach) = decided else { return };
        self.stats.silent_edges += u64::from(reach == Reach::Silent);
        self.events.push_back(Event::Datagrams { port, reach });
    }

    fn parent_port(&self, group: GroupId) -> Option<PortId> {
        let port = self.groups[group.0 as usize].as_ref()?.parent.as_ref()?.port;
        debug_assert_eq!(self.role(port), Role::Parent { group });
        Some(port)
    }
}
