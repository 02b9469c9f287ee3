//! The way down: results, from the root to every child.

use tributary_wire::frame::{Abort, AbortReason, Message, Part, Target, Trail};
use tributary_wire::{ChildIndex, GroupId, Operator};

use super::group::Group;
use super::slot::{Phase, Slot};
use super::{FrameError, Node};
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
    pub(super) fn handle_result(
        &mut self,
        id: GroupId,
        answer: Answer<'_>,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let Answer { now, carrier, part } = answer;
        let group = self.group_mut(id);
        if carrier == Carrier::Datagram {
            group.upward.on_heard(now);
        }
        let index = group.slot_index(part.sequence);
        let place = group.accumulator(index);
        let slot = &mut group.slots[index];
        let unexpected = FrameError::Unexpected { sequence: part.sequence.0 };
        if slot.is_past(part.sequence) {
            self.stats.repeats += 1;
            return Ok(());
        }
        if !slot.holds(part.sequence) || slot.phase == Phase::Gathering {
            return Err(unexpected);
        }
        if !slot.agrees_with(part) {
            return Err(unexpected);
        }
        if slot.phase == Phase::Done {
            self.stats.repeats += 1;
            return Ok(());
        }
        slot.has_data = part.has_data;
        if part.has_data {
            payloads.store(place, payload);
        }
        self.on_answered(id, Answer { now, carrier, part });
        self.listen(id, carrier, part);
        self.distribute(id, index);
        Ok(())
    }

    /// Tells loss recovery, and repeats what the result shows to be lost.
    fn on_answered(&mut self, id: GroupId, answer: Answer<'_>) {
        let Answer { now, carrier, part } = answer;
        let group = self.group_mut(id);
        let was_asking = group.upward.is_waiting();
        if !was_asking {
            return;
        }
        let decided = group.upward.on_result(now, carrier, part.sequence, part.trail);
        if let Some(port) = group.parent.as_ref().map(|parent| parent.port) {
            self.decide(port, decided);
        }
        self.send_upward(now, id);
        self.note_asking(id, was_asking);
    }

    /// Hands the result in the slot's accumulator to every child.
    pub(super) fn distribute(&mut self, id: GroupId, slot: usize) {
        self.stats.results += 1;
        let group = self.group_mut(id);
        group.slots[slot].phase = Phase::Done;
        group.advance_floor();
        self.multicast_result(id, slot);
        for index in 0..self.group_mut(id).children.len() {
            let child = ChildIndex(index as u16);
            let group = self.group_mut(id);
            let held = &group.slots[slot];
            let is_spared = held.part.is_some_and(|part| group.spares_copy(held, &part, child));
            if is_spared {
                self.stats.spared += 1;
                continue;
            }
            if self.send_result(id, slot, child).is_err() {
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
        slot_index: usize,
        child: ChildIndex,
    ) -> Result<(), FrameError> {
        let group = self.group_mut(id);
        let slot = &group.slots[slot_index];
        let heard = slot.heard(child);
        let mut part = slot.part.expect("a result's slot is open");
        part.has_data = group.wants_data(slot, &part, child);
        part.trail = Trail { attempt: heard.attempt, behind: group.behind(part.sequence) };
        let header = group.header_to_child(child, Message::Result(part));
        let body = part.has_data.then(|| group.accumulator(slot_index));
        // Whoever gave the operation up and left reads nothing more.
        let to = &group.children[usize::from(child.0)];
        let (Some(port), false) = (to.port, to.has_left) else { return Ok(()) };
        match heard.carrier {
            Carrier::Datagram | Carrier::Multicast => self.transmit_datagram(port, header, body),
            Carrier::Link if self.transmit(port, header, body) => {}
            Carrier::Link => return Err(FrameError::NotReading),
        }
        Ok(())
    }
}

impl Group {
    /// Whether a child needs the result itself, or only to know that the segment is complete.
    fn wants_data(&self, slot: &Slot, part: &Part, child: ChildIndex) -> bool {
        let members = &self.children[usize::from(child.0)].members;
        let is_only_its_source = part.shape.operator() == Operator::Broadcast
            && slot.data_from == Some(child)
            && members.end.0 - members.start.0 == 1;
        let is_targeted = match part.target {
            Target::All => true,
            Target::Member(member) => members.contains(&member),
        };
        slot.has_data && is_targeted && !is_only_its_source
    }
}
