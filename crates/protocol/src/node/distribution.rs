//! The way down: results, from the root to every child.

use tributary_wire::frame::{Abort, AbortReason, Part, Target};
use tributary_wire::{ChildIndex, GroupId, Operator};

use super::group::{Child, Course};
use super::slot::{Phase, Slot};
use super::{FrameError, Node};
use crate::payloads::Payloads;

impl Node {
    /// Takes one result. For a chunk, it is the group's turn to stream and the part is one of its
    /// vector's.
    pub(super) fn handle_result(
        &mut self,
        id: GroupId,
        course: Course,
        part: &Part,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let (slots, _) = self.group_mut(id).window(course);
        let index = slots.index_of(part.sequence);
        let place = slots.accumulator(index);
        let slot = slots.slot_mut(index);
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
        self.distribute(id, course, index);
        Ok(())
    }

    /// Hands the result in the slot's accumulator to every child.
    pub(super) fn distribute(&mut self, id: GroupId, course: Course, slot: usize) {
        let group = self.group_mut(id);
        group.window(course).0.slot_mut(slot).phase = Phase::Done;
        let children = group.children.len();
        match course {
            Course::Segment => self.stats.results += 1,
            Course::Chunk => {
                self.group_mut(id).on_chunk_complete();
                self.stats.chunk_results += 1;
            }
        }
        for index in 0..children {
            let child = ChildIndex(index as u16);
            if self.send_result(id, course, slot, child).is_err() {
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
        course: Course,
        index: usize,
        child: ChildIndex,
    ) -> Result<(), FrameError> {
        let group = self.group_mut(id);
        let (slots, children) = group.window(course);
        let slot = &slots[index];
        let mut part = slot.part.expect("a result's slot is open");
        part.has_data = wants_data(slot, &part, child, &children[usize::from(child.0)]);
        let body = part.has_data.then(|| slots.accumulator(index));
        let header = group.header_to_child(child, course.downward(part));
        let Some(port) = group.children[usize::from(child.0)].port else { return Ok(()) };
        if self.transmit(port, header, body) { Ok(()) } else { Err(FrameError::NotReading) }
    }
}

/// Whether a child needs the result itself, or only to know that the segment is complete.
fn wants_data(slot: &Slot, part: &Part, child: ChildIndex, grant: &Child) -> bool {
    let members = &grant.members;
    let is_only_its_source = part.shape.operator() == Operator::Broadcast
        && slot.data_from == Some(child)
        && members.end.0 - members.start.0 == 1;
    let is_targeted = match part.target {
        Target::All => true,
        Target::Member(member) => members.contains(&member),
    };
    slot.has_data && is_targeted && !is_only_its_source
}
