//! Segments of a group that its driver completes elsewhere, in a part of the node that is faster for short
//! ones. The driver decides who completes which; this machine learns of results, and says what it has.

use alloc::vec;

use tributary_wire::frame::{Header, Message, Part, Subscription, Version};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId, Sequence};

use super::group::{Child, Group, PartKind};
use super::multicast::Multicast;
use super::port::Role;
use super::slot::{NewestAttempt, Phase};
use super::{Node, PortId};
use crate::payloads::Payloads;
use crate::{Carrier, Time};

/// One child's edge, as whoever completes segments elsewhere has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildEdge {
    /// Its link.
    pub port: PortId,
    /// What its frames show.
    pub capability: Capability,
    /// The number after the highest that it has sent.
    pub next: Sequence,
    /// Who at or below it receives multicast.
    pub subscription: Subscription,
}

/// The edge to a group's parent, as whoever completes segments elsewhere has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentEdge {
    /// The link.
    pub port: PortId,
    /// Which of the parent's children this node is.
    pub child: ChildIndex,
    /// What frames between the two show.
    pub capability: Capability,
}

/// A group's multicast at its root, as whoever completes segments elsewhere has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastTerms {
    /// What results to the address show.
    pub capability: Capability,
    /// Longest result that goes there.
    pub longest_bytes: u32,
    /// Results sent since there was a subscriber.
    pub unreceived: u8,
}

/// What a group has, as whoever completes segments elsewhere has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTerms {
    /// Its incarnation.
    pub epoch: Epoch,
    /// The layout of its frames.
    pub frame_version: Version,
    /// Segments in flight at most.
    pub osos: u16,
    /// Longest segment.
    pub payload_max_bytes: u32,
    /// The earliest segment whose result is not here.
    pub floor: Sequence,
    /// The edge to the parent; none at the root.
    pub parent: Option<ParentEdge>,
    /// Its multicast, if it has any.
    pub multicast: Option<MulticastTerms>,
}

impl Node {
    /// The group of a link, to a child or to the parent.
    #[must_use]
    pub fn group_of_link(&self, port: PortId) -> Option<GroupId> {
        self.group_of_child(port).or_else(|| self.group_of_parent(port))
    }

    /// The group of a child's link.
    #[must_use]
    pub fn group_of_child(&self, port: PortId) -> Option<GroupId> {
        match self.outputs.role(port) {
            Role::Child { group, .. } => Some(group),
            _ => None,
        }
    }

    /// The group of the link to a parent.
    #[must_use]
    pub fn group_of_parent(&self, port: PortId) -> Option<GroupId> {
        match self.outputs.role(port) {
            Role::Parent { group } => Some(group),
            _ => None,
        }
    }

    /// The terms of a group whose segments may be completed elsewhere: this node is its root or exchanges datagrams
    /// with its parent, every child has joined and none has left, and results go nowhere but to children.
    #[must_use]
    pub fn terms_elsewhere(&self, group: GroupId) -> Option<GroupTerms> {
        let group = self.group(group)?;
        let is_plain = (group.parent.is_none() || group.upward.carrier(0) == Carrier::Datagram)
            && group.external_receiver.is_none()
            && group.children.iter().all(|child| child.has_joined && !child.has_left);
        is_plain.then(|| GroupTerms {
            epoch: group.epoch,
            frame_version: group.frame_version,
            osos: group.osos(),
            payload_max_bytes: group.arena().payload_max_bytes,
            floor: group.floor(),
            parent: group.parent.as_ref().map(|parent| ParentEdge {
                port: parent.port,
                child: parent.child,
                capability: parent.capability,
            }),
            multicast: group.multicast.as_ref().map(Multicast::terms),
        })
    }

    /// The children of a group that have links, in their order.
    pub fn child_edges(&self, group: GroupId) -> impl Iterator<Item = ChildEdge> {
        self.group(group).into_iter().flat_map(|group| &group.children).filter_map(|child| {
            let port = child.port?;
            let Child { capability, next, subscription, .. } = *child;
            Some(ChildEdge { port, capability, next, subscription })
        })
    }

    /// The segments in a group's slots, and whether their results are here.
    pub fn segments(&self, group: GroupId) -> impl Iterator<Item = (Sequence, bool)> {
        let slots = self.group(group).into_iter().flat_map(|group| group.slots.iter());
        slots.filter_map(|slot| Some((slot.part?.sequence, slot.phase == Phase::Done)))
    }

    /// Whether a group's slot holds a segment, and then whether its result is here.
    #[must_use]
    pub fn segment(&self, group: GroupId, sequence: Sequence) -> Option<bool> {
        let slots = &self.group(group)?.slots;
        let slot = &slots[slots.index_of(sequence)];
        slot.holds(sequence).then_some(slot.phase == Phase::Done)
    }

    /// Takes the result of a segment that was completed elsewhere, with the newest attempt of each child. It
    /// was sent from there; this node answers repeats with it. A segment whose result is here, or was, is
    /// left alone.
    pub fn adopt_result(
        &mut self,
        id: GroupId,
        part: &Part,
        attempts: &[u8],
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        if let Some(group) = self.adopt(id, part, attempts, payload, Phase::Done, payloads) {
            group.skip_floor(part.sequence);
            group.advance_floor();
        }
    }

    /// Takes over a segment whose contributions were folded elsewhere, and sent to the parent from there, with the
    /// newest attempt of each child. A segment whose result is here, or was, is left alone.
    pub fn adopt_forwarded(
        &mut self,
        id: GroupId,
        part: &Part,
        attempts: &[u8],
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        self.adopt(id, part, attempts, payload, Phase::Forwarded, payloads);
    }

    /// Sends what [`Self::adopt_forwarded`] took over to the parent, again until the result comes.
    pub fn send_adopted(&mut self, now: Time, id: GroupId, sequence: Sequence) {
        let Some(group) = self.group(id) else { return };
        let index = group.slots.index_of(sequence);
        let slot = &group.slots[index];
        if slot.holds(sequence) && slot.phase == Phase::Forwarded {
            self.send_to_parent(now, id, PartKind::Segment, index);
        }
    }

    /// Takes note that a segment was completed elsewhere, and that its result is gone there, because every child
    /// has had it. What was contributed to it here is dropped.
    pub fn pass_over(&mut self, id: GroupId, part: &Part, payloads: &mut impl Payloads) {
        let Some(children) = self.group(id).map(|group| group.children.len()) else { return };
        let part = Part { has_data: false, ..*part };
        self.adopt_result(id, &part, &vec![0; children], &[], payloads);
    }

    /// A child's header for a contribution that was gathered elsewhere.
    #[must_use]
    pub fn header_of_request(
        &self,
        group: GroupId,
        child: ChildIndex,
        part: Part,
    ) -> Option<Header> {
        self.group(group).map(|group| group.header_to_child(child, Message::Request(part)))
    }

    /// Puts into its slot what was made elsewhere of every child's contribution, unless the segment's result is here, or
    /// was. Returns its group if it did.
    fn adopt(
        &mut self,
        id: GroupId,
        part: &Part,
        attempts: &[u8],
        payload: &[u8],
        phase: Phase,
        payloads: &mut impl Payloads,
    ) -> Option<&mut Group> {
        let group = self.groups.get_mut(id.0 as usize)?.as_deref_mut()?;
        if group.slots.is_answered(part.sequence) {
            return None;
        }
        debug_assert_eq!(attempts.len(), group.children.len());
        let index = group.slots.index_of(part.sequence);
        let place = group.slots.accumulator(index);
        let slot = group.slots.slot_mut(index);
        slot.open(part);
        for (child, attempt) in attempts.iter().enumerate() {
            let newest = NewestAttempt { carrier: Carrier::Datagram, attempt: *attempt };
            slot.mark_arrived(ChildIndex(child as u16), newest);
        }
        slot.next_child = attempts.len() as u16;
        slot.has_data = part.has_data;
        slot.phase = phase;
        if part.has_data {
            payloads.store(place, payload);
        }
        group.note_all_sent(part.sequence);
        Some(group)
    }

    fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.0 as usize)?.as_deref()
    }
}

impl Group {
    /// Every child has sent a segment.
    fn note_all_sent(&mut self, sequence: Sequence) {
        let next = sequence.next();
        for child in &mut self.children {
            if (1..1 << 31).contains(&next.distance_from(child.next)) {
                child.next = next;
            }
        }
    }
}
