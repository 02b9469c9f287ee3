//! The way up: contributions, reduced in child order.

use tributary_wire::frame::{Abort, AbortReason, Part};
use tributary_wire::{ChildIndex, GroupId, Operator};

use super::group::Course;
use super::slot::Phase;
use super::slots::Outcome;
use super::{FrameError, Node};
use crate::payloads::Payloads;

impl Node {
    /// Takes one contribution. For a chunk, it is the group's turn to stream and the part is one
    /// of its vector's.
    pub(super) fn handle_contribution(
        &mut self,
        id: GroupId,
        course: Course,
        child: ChildIndex,
        part: &Part,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let (slots, children) = self.group_mut(id).window(course);
        let outcome = slots.contribute(children, child, part, payload, payloads)?;
        let slot = slots.index_of(part.sequence);
        match outcome {
            Outcome::Gathering => self.count_contribution(course),
            Outcome::Repeat { is_done } => {
                self.stats.repeats += 1;
                if is_done {
                    self.send_result(id, course, slot, child)?;
                }
            }
            Outcome::Complete => {
                self.count_contribution(course);
                self.complete(id, course, slot, payloads);
            }
            Outcome::Failed(abort) => self.fail(id, abort),
        }
        Ok(())
    }

    fn count_contribution(&mut self, course: Course) {
        match course {
            Course::Segment => self.stats.requests += 1,
            Course::Chunk => self.stats.chunks += 1,
        }
    }

    /// Every child has contributed: sends one request upward, or, at the root, the result down.
    fn complete(
        &mut self,
        id: GroupId,
        course: Course,
        index: usize,
        payloads: &mut impl Payloads,
    ) {
        let group = self.group_mut(id);
        let (slots, _) = group.window(course);
        let place = slots.accumulator(index);
        let slot = slots.slot_mut(index);
        let mut part = slot.part.expect("a slot that completes is open");
        part.has_data = slot.has_data;
        slot.phase = Phase::Forwarded;
        if part.shape.operator().is_reduction() {
            payloads.finish(place, part.shape);
        }
        let Some((port, header)) = group.header_to_parent(course.upward(part)) else {
            if part.shape.operator() == Operator::Broadcast && !part.has_data {
                let at_fault = group.first_member();
                self.fail(id, Abort { reason: AbortReason::Disagreement, at_fault });
                return;
            }
            self.distribute(id, course, index);
            return;
        };
        if !self.transmit(port, header, part.has_data.then_some(place)) {
            // The parent's link is stuck although every slot's request fits: count it as lost.
            let at_fault = self.group_mut(id).first_member();
            self.fail(id, Abort { reason: AbortReason::NodeLost, at_fault });
        }
    }
}
