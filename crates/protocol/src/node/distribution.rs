//! Results on their way down, from the root to every child.

use tributary_wire::frame::{Abort, AbortReason, Message, Part, RetransmitState};
use tributary_wire::{ChildIndex, GroupId, Operator};

use super::group::{Child, PartKind};
use super::slot::{Phase, Slot};
use super::{FrameError, Node, PortId};
use crate::payloads::Payloads;
use crate::{Carrier, Time};

/// A result from the parent.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    pub(super) now: Time,
    pub(super) carrier: Carrier,
    pub(super) part: &'a Part,
}

impl Node {
    /// Takes one result.
    pub(super) fn handle_result(
        &mut self,
        id: GroupId,
        kind: PartKind,
        answer: Answer<'_>,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let Answer { now, carrier, part } = answer;
        if kind == PartKind::Chunk && !self.admits_chunk(id, part)? {
            return Ok(());
        }
        let group = self.group_mut(id);
        if carrier == Carrier::Datagram {
            group.upward.on_datagram(now);
        }
        let (slots, _) = group.window(kind);
        let index = slots.index_of(part.sequence);
        let place = slots.accumulator(index);
        let slot = slots.slot_mut(index);
        let unexpected = FrameError::Unexpected { sequence: part.sequence.0 };
        if slot.is_past(part.sequence) {
            self.outputs.stats.repeats += 1;
            return Ok(());
        }
        if !slot.holds(part.sequence) || slot.phase == Phase::Gathering {
            return Err(unexpected);
        }
        if !slot.agrees_with(part) {
            return Err(unexpected);
        }
        if slot.phase == Phase::Done {
            self.outputs.stats.repeats += 1;
            return Ok(());
        }
        slot.has_data = part.has_data;
        if part.has_data {
            payloads.store(place, payload);
        }
        if kind == PartKind::Segment {
            self.on_answered(id, Answer { now, carrier, part });
            self.update_subscription(id, carrier, part);
        }
        self.distribute(id, kind, index);
        Ok(())
    }

    /// Passes a result to loss recovery, and repeats what the result shows to be lost.
    fn on_answered(&mut self, id: GroupId, answer: Answer<'_>) {
        let Answer { now, carrier, part } = answer;
        let group = self.group_mut(id);
        let was_waiting = group.upward.is_waiting();
        if !was_waiting {
            return;
        }
        let decided = group.upward.on_result(now, carrier, part.sequence, part.retransmit);
        if let Some(port) = group.parent.as_ref().map(|parent| parent.port) {
            self.outputs.report_datagrams(port, decided);
        }
        self.send_upward(now, id);
        self.update_repeat_timer(id, was_waiting);
    }

    /// Hands the result in the slot's accumulator to every child.
    pub(super) fn distribute(&mut self, id: GroupId, kind: PartKind, slot: usize) {
        let group = self.group_mut(id);
        group.window(kind).0.slot_mut(slot).phase = Phase::Done;
        match kind {
            PartKind::Segment => {
                group.advance_floor();
                self.multicast_result(id, slot);
                self.send_to_external_receiver(id, slot);
                self.outputs.stats.results += 1;
            }
            PartKind::Chunk => {
                group.on_chunk_complete();
                self.outputs.stats.chunk_results += 1;
            }
        }
        for index in 0..self.group_mut(id).children.len() {
            let child = ChildIndex(index as u16);
            if kind == PartKind::Segment && self.group_mut(id).spares_copy(slot, child) {
                self.outputs.stats.spared += 1;
                continue;
            }
            if self.send_result(id, kind, slot, child).is_err() {
                let at_fault = self.group_mut(id).children[index].members.start;
                self.fail(id, Abort { reason: AbortReason::Misbehaved, at_fault });
                return;
            }
        }
    }

    /// Hands the result in the slot's accumulator to one child.
    pub(super) fn send_result(
        &mut self,
        id: GroupId,
        kind: PartKind,
        index: usize,
        child: ChildIndex,
    ) -> Result<(), FrameError> {
        let group = self.group_mut(id);
        let (slots, children) = group.window(kind);
        let slot = &slots[index];
        let newest_attempt = slot.newest_attempt(child);
        let mut part = slot.part.expect("a result's slot is open");
        part.has_data = wants_data(slot, &part, child, &children[usize::from(child.0)]);
        let body = part.has_data.then(|| slots.accumulator(index));
        part.retransmit = match kind {
            PartKind::Segment => RetransmitState {
                attempt: newest_attempt.attempt,
                behind: group.behind(part.sequence),
            },
            PartKind::Chunk => RetransmitState::default(),
        };
        let header = group.header_to_child(child, kind.downward(part));
        // A child that has left reads nothing more.
        let to = &group.children[usize::from(child.0)];
        let (Some(port), false) = (to.port, to.has_left) else { return Ok(()) };
        match newest_attempt.carrier {
            Carrier::Datagram | Carrier::Multicast => {
                self.outputs.transmit_datagram(port, header, body)
            }
            Carrier::Link if self.outputs.transmit(port, header, body) => {}
            Carrier::Link => {
                self.forget_overtaken(id, port);
                if !self.outputs.transmit(port, header, body) {
                    return Err(FrameError::NotReading);
                }
            }
        }
        Ok(())
    }
}

impl Node {
    /// Drops results that wait for a port's link and that nobody needs any more. A child whose
    /// members receive multicast goes on before it has read its copies.
    fn forget_overtaken(&mut self, id: GroupId, port: PortId) {
        let group = self.groups[id.0 as usize].as_ref().expect("the caller found the group");
        let slots = &group.slots;
        self.outputs.outbox_mut(port).retain(|queued| match queued.header.message {
            Message::Result(part) => !slots[slots.index_of(part.sequence)].is_past(part.sequence),
            _ => true,
        });
    }
}

/// Whether a child needs the result itself, or only to know that the segment is complete.
fn wants_data(slot: &Slot, part: &Part, child: ChildIndex, grant: &Child) -> bool {
    let members = &grant.members;
    let is_only_its_source = part.shape.operator() == Operator::Broadcast
        && slot.data_from == Some(child)
        && members.end.0 - members.start.0 == 1;
    slot.has_data && part.target.is_among(members) && !is_only_its_source
}
