//! Results to a group's multicast address: sent at its root, heard at its other nodes.

use tributary_wire::frame::{EVERYONE, Edge, Header, Hearing, Message, Part, Trail};
use tributary_wire::{Capability, ChildIndex, GroupId};

use super::distribution::Answer;
use super::group::{Course, Group};
use super::{Event, FrameError, Node, Transmit};
use crate::multicast::Ear;
use crate::payloads::Payloads;
use crate::{Carrier, Reach, Time};

/// Results sent with nobody hearing any, after which the root saves itself the trouble.
const UNHEARD_MAX: u8 = 64;

/// A group's multicast at one of its nodes.
#[derive(Debug)]
pub(super) struct Multicast {
    capability: Capability,
    ear: Ear,
    /// Results sent since anybody said that it hears them; none once the root has given up.
    unheard: Option<u8>,
    longest_bytes: u32,
}

impl Node {
    /// Lets a group's results travel by multicast: its root sends them to the address that the
    /// driver knows, in datagrams of `capability`; its other nodes hear them. Right after the
    /// install, wherever the manager grants an address: with `segment_max_bytes` of 0 where this
    /// node sends and hears none, because members below it may hear them all the same, and go on
    /// with results that have not come to it. Segments longer than `segment_max_bytes` are not multicast.
    ///
    /// A child that hears multicast gets a reliable copy only when it asks for one: a lost multicast
    /// costs it a timeout, and the others cost the node nothing.
    pub fn use_multicast(
        &mut self,
        group: GroupId,
        capability: Capability,
        segment_max_bytes: u32,
    ) {
        let Some(Some(found)) = self.groups.get_mut(group.0 as usize) else { return };
        found.slots.let_be_overtaken();
        found.multicast = Some(Multicast {
            capability,
            ear: Ear::new(capability),
            unheard: Some(0),
            longest_bytes: segment_max_bytes,
        });
    }

    /// The next frame for a group's multicast address, to be taken at once.
    pub fn poll_multicast(&mut self) -> Option<(GroupId, Transmit)> {
        self.multicasts.pop_front()
    }

    /// Takes a frame that came by multicast.
    ///
    /// # Errors
    /// If it isn't a result of a group that is served below another node, or doesn't show the
    /// group's capability. It is dropped, and nothing else happens.
    pub fn handle_multicast(
        &mut self,
        now: Time,
        header: &Header,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let Edge { group: id, epoch, .. } = header.edge;
        let unknown = FrameError::UnknownGroup { group: id, epoch };
        let found = self.groups.get(id.0 as usize).and_then(Option::as_ref).ok_or(unknown)?;
        let multicast = found.multicast.as_ref().ok_or(unknown)?;
        if found.epoch != epoch {
            return Err(unknown);
        }
        if !multicast.ear.accepts(found.id, found.epoch, &header.edge) {
            return Err(FrameError::Forged { group: id });
        }
        if found.parent.is_none() {
            // The root hears itself.
            return Ok(());
        }
        let Message::Result(part) = header.message else { return Err(FrameError::WrongDirection) };
        let answer = Answer { now, carrier: Carrier::Multicast, part: &part };
        self.handle_result(id, Course::Segment, answer, payload, payloads)
    }

    /// Sends a result to everybody, if this is the root and anybody may hear it.
    pub(super) fn multicast_result(&mut self, id: GroupId, slot_index: usize) {
        let group = self.group_mut(id);
        let Some(header) = group.multicast_header(slot_index) else { return };
        let body = (header.payload_bytes() > 0).then(|| group.slots.accumulator(slot_index));
        let is_heard = group.is_heard_below();
        let multicast = group.multicast.as_mut().expect("it gave the header");
        let mut gives_up = false;
        if let Some(unheard) = &mut multicast.unheard {
            *unheard = if is_heard { 0 } else { *unheard + 1 };
            gives_up = *unheard > UNHEARD_MAX;
        }
        if gives_up {
            self.group_mut(id).multicast.as_mut().expect("seen above").unheard = None;
            self.events.push_back(Event::Multicast { group: id, reach: Reach::Silent });
            return;
        }
        self.stats.multicasts += 1;
        self.multicasts.push_back((id, Transmit { header, body, carrier: Carrier::Multicast }));
    }

    /// A child says who hears what is multicast.
    pub(super) fn handle_hears(&mut self, id: GroupId, child: ChildIndex, hearing: Hearing) {
        let group = self.group_mut(id);
        if group.multicast.is_none() {
            return;
        }
        let was_heard = group.is_heard_below();
        group.children[usize::from(child.0)].hearing = hearing;
        let is_heard = group.is_heard_below();
        let multicast = group.multicast.as_mut().expect("seen above");
        if group.parent.is_none() {
            // Somebody hears, so it is worth the while even after giving up.
            if is_heard && multicast.unheard.replace(0).is_none() {
                self.events.push_back(Event::Multicast { group: id, reach: Reach::Open });
            }
        } else if was_heard != is_heard && !multicast.ear.hears() {
            self.tell_hearing(id);
        }
    }

    /// Takes note of how a result from above came, and tells the parent what follows.
    pub(super) fn listen(&mut self, id: GroupId, carrier: Carrier, part: &Part) {
        let Some(multicast) = &mut self.group_mut(id).multicast else { return };
        if multicast.ear.on_result(carrier, part.trail.attempt).is_some() {
            self.tell_hearing(id);
        }
    }

    fn tell_hearing(&mut self, id: GroupId) {
        let group = self.group_mut(id);
        let hears = group.multicast.as_ref().is_some_and(|multicast| multicast.ear.hears());
        let hearing = match group.is_heard_below() {
            _ if hears => Hearing::Here,
            true => Hearing::Below,
            false => Hearing::Nobody,
        };
        let Some((port, header)) = group.header_to_parent(Message::Hears(hearing)) else { return };
        if !self.transmit(port, header, None) {
            self.stats.dropped += 1;
        }
    }
}

impl Group {
    fn is_heard_below(&self) -> bool {
        self.children.iter().any(|child| child.hearing != Hearing::Nobody)
    }

    /// Whether a child gets no copy of a result, because it hears it or asks for it.
    pub(super) fn spares_copy(&self, slot_index: usize, child: ChildIndex) -> bool {
        let slot = &self.slots[slot_index];
        let (Some(multicast), Some(part)) = (&self.multicast, &slot.part) else { return false };
        let hears = self.children[usize::from(child.0)].hearing == Hearing::Here;
        // Only who asked by datagram asks again by itself.
        let asks = slot.heard(child).carrier == Carrier::Datagram;
        #[cfg(feature = "planted-bugs")]
        let asks = asks || crate::planted::is_planted(crate::planted::Bug::SparedCopy);
        hears && asks && multicast.carries(part)
    }

    fn multicast_header(&self, slot_index: usize) -> Option<Header> {
        let multicast = self.multicast.as_ref()?;
        let slot = &self.slots[slot_index];
        let mut part = slot.part?;
        if self.parent.is_some() || multicast.unheard.is_none() || !multicast.carries(&part) {
            return None;
        }
        part.has_data = slot.has_data;
        part.trail = Trail { attempt: 0, behind: self.behind(part.sequence) };
        let capability = multicast.capability;
        let edge = Edge { group: self.id, epoch: self.epoch, child: EVERYONE, capability };
        Some(Header { edge, message: Message::Result(part) })
    }
}

impl Multicast {
    /// Whether a segment's result is for everybody and fits a datagram.
    fn carries(&self, part: &Part) -> bool {
        part.target.is_all() && part.shape.bytes() <= self.longest_bytes as usize
    }
}
