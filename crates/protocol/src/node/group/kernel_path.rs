//! What the kernel path and a group have to know of each other.
//!
//! The kernel path completes some of a group's segments inside the kernel. The driver decides which; the group learns
//! of results, and says what it has.

use tributary_wire::frame::{Header, Message, Part, Subscription, Version};
use tributary_wire::{Capability, ChildIndex, Epoch, Sequence};

use super::child::Child;
use super::multicast::{Multicast, MulticastTerms};
use super::slot::{NewestAttempt, Phase};
use super::{Group, GroupError, PartKind};
use crate::node::outputs::Outputs;
use crate::node::port::PortId;
use crate::payloads::Payloads;
use crate::{Carrier, Time};

/// One child's edge, as the kernel path has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildEdge {
    /// Its link.
    pub port: PortId,
    /// What its frames show.
    pub capability: Capability,
    /// The number after the highest that it has sent.
    pub next: Sequence,
    /// Whether it, or a member below it, receives multicast.
    pub subscription: Subscription,
}

/// The edge to a group's parent, as the kernel path has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentEdge {
    /// The link.
    pub port: PortId,
    /// Which of the parent's children this aggregator is.
    pub child: ChildIndex,
    /// What frames between the two show.
    pub capability: Capability,
}

/// What a group has, as the kernel path has to know it.
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

/// What a group's slots have of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Nothing: no contribution has come, or its slot has moved on.
    Absent,
    /// Contributions, and no result.
    Open,
    /// The result.
    Complete,
}

impl Group {
    /// Its terms, if the kernel path may complete segments: this aggregator is its root or exchanges datagrams with its
    /// parent, every child has joined and none has left, and results go nowhere but to children.
    pub(in crate::node) fn kernel_terms(&self) -> Option<GroupTerms> {
        let is_plain = (self.is_root() || self.upward.carrier(0) == Carrier::Datagram)
            && self.external_receiver.is_none()
            && self.children.iter().all(|child| child.has_joined && !child.has_left);
        is_plain.then(|| GroupTerms {
            epoch: self.epoch,
            frame_version: self.frame_version,
            osos: self.osos(),
            payload_max_bytes: self.arena().payload_max_bytes,
            floor: self.floor,
            parent: self.parent.as_ref().map(|parent| ParentEdge {
                port: parent.port,
                child: parent.child,
                capability: parent.capability,
            }),
            multicast: self.multicast.as_ref().map(Multicast::terms),
        })
    }

    /// The children that have links, in their order.
    pub(in crate::node) fn child_edges(&self) -> impl Iterator<Item = ChildEdge> {
        self.children.iter().filter_map(|child| {
            let port = child.port?;
            let Child { capability, next, subscription, .. } = *child;
            Some(ChildEdge { port, capability, next, subscription })
        })
    }

    /// The segments in the slots.
    pub(in crate::node) fn segments(&self) -> impl Iterator<Item = (Sequence, SegmentState)> {
        self.slots.iter().filter_map(|slot| Some((slot.part?.sequence, slot.phase.state())))
    }

    /// What the slots have of a segment.
    pub(in crate::node) fn segment_state(&self, sequence: Sequence) -> SegmentState {
        let slot = &self.slots[self.slots.index_of(sequence)];
        if slot.holds(sequence) { slot.phase.state() } else { SegmentState::Absent }
    }

    /// A child's header for a contribution that the kernel path has gathered.
    pub(in crate::node) fn request_header(&self, child: ChildIndex, part: Part) -> Header {
        self.header_to_child(child, Message::Request(part))
    }

    /// Takes a segment's result from the kernel path, which has sent it to the children.
    pub(in crate::node) fn take_result(
        &mut self,
        part: &Part,
        attempts: impl ExactSizeIterator<Item = u8>,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        if self.fill_slot(part, attempts, payload, Phase::Done, payloads) {
            self.skip_floor(part.sequence);
            self.advance_floor();
        }
    }

    /// Takes over a segment that the kernel path has folded and sent to the parent.
    pub(in crate::node) fn take_forwarded(
        &mut self,
        part: &Part,
        attempts: &[u8],
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        self.fill_slot(part, attempts.iter().copied(), payload, Phase::Forwarded, payloads);
    }

    /// Forgets a segment whose result every child has had from the kernel path, and what was contributed to it here.
    pub(in crate::node) fn skip_segment(&mut self, part: &Part, payloads: &mut impl Payloads) {
        let part = Part { has_data: false, ..*part };
        let attempts = (0..self.children.len()).map(|_| 0);
        self.take_result(&part, attempts, &[], payloads);
    }

    /// Sends the parent a segment that was taken over, again until the result comes.
    pub(in crate::node) fn send_forwarded(
        &mut self,
        out: &mut Outputs,
        now: Time,
        sequence: Sequence,
    ) -> Result<(), GroupError> {
        let index = self.slots.index_of(sequence);
        let slot = &self.slots[index];
        if slot.holds(sequence) && slot.phase == Phase::Forwarded {
            self.send_to_parent(out, now, PartKind::Segment, index)?;
        }
        Ok(())
    }

    /// Puts into its slot what the kernel path made of every child's contribution. `false` if the segment's result
    /// is here, or was: then nothing changes.
    fn fill_slot(
        &mut self,
        part: &Part,
        attempts: impl ExactSizeIterator<Item = u8>,
        payload: &[u8],
        phase: Phase,
        payloads: &mut impl Payloads,
    ) -> bool {
        if self.slots.is_answered(part.sequence) {
            return false;
        }
        debug_assert_eq!(attempts.len(), self.children.len());
        let index = self.slots.index_of(part.sequence);
        let place = self.slots.accumulator(index);
        let slot = self.slots.slot_mut(index);
        slot.open(part);
        slot.next_child = attempts.len() as u16;
        for (child, attempt) in attempts.enumerate() {
            let newest = NewestAttempt { carrier: Carrier::Datagram, attempt };
            slot.mark_arrived(ChildIndex(child as u16), newest);
        }
        slot.has_data = part.has_data;
        slot.phase = phase;
        if part.has_data {
            payloads.store(place, payload);
        }
        self.note_all_sent(part.sequence);
        true
    }

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

impl Phase {
    fn state(self) -> SegmentState {
        match self {
            Self::Gathering | Self::Forwarded => SegmentState::Open,
            Self::Done => SegmentState::Complete,
        }
    }
}
