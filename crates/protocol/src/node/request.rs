//! The way up: contributions, reduced in child order.

use tributary_wire::frame::{Abort, AbortReason, Message, Part, Target, Trail};
use tributary_wire::{ChildIndex, GroupId, Operator};

use super::group::Group;
use super::slot::{Heard, Phase};
use super::{FrameError, Node};
use crate::payloads::{Payloads, Source};
use crate::{Carrier, Time};

/// What a contribution leads to.
enum Outcome {
    /// Others are still missing.
    Gathering,
    /// It was counted before.
    Repeat(Repeated),
    /// It was the last.
    Complete,
    /// It cannot belong to what the others started, or one of them has left.
    Failed(Abort),
}

/// Which repeat of a contribution that was counted before.
#[derive(Clone, Copy)]
enum Repeated {
    /// Its slot waits for others.
    Waiting,
    /// Its slot has the result.
    Done,
    /// Its slot has moved on: the member has had the result.
    Past,
}

/// Whose request it is, and how it came.
#[derive(Clone, Copy)]
pub(super) struct From {
    pub(super) child: ChildIndex,
    pub(super) carrier: Carrier,
}

impl Node {
    pub(super) fn handle_request(
        &mut self,
        now: Time,
        id: GroupId,
        from: From,
        part: &Part,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let group = self.group_mut(id);
        let outcome = group.contribute(from, part, payload, payloads)?;
        let slot = group.slot_index(part.sequence);
        match outcome {
            Outcome::Gathering => self.on_counted(id, from, part),
            Outcome::Repeat(repeated) => {
                self.stats.repeats += 1;
                self.answer_repeat(id, slot, from, part, repeated)?;
            }
            Outcome::Complete => {
                self.on_counted(id, from, part);
                self.complete(now, id, slot, payloads);
            }
            Outcome::Failed(abort) => self.fail(id, abort),
        }
        Ok(())
    }

    fn on_counted(&mut self, id: GroupId, from: From, part: &Part) {
        self.stats.requests += 1;
        self.report_missing(id, from, part.sequence);
    }

    fn answer_repeat(
        &mut self,
        id: GroupId,
        slot: usize,
        from: From,
        part: &Part,
        repeated: Repeated,
    ) -> Result<(), FrameError> {
        let From { child, carrier } = from;
        let attempt = part.trail.attempt;
        match repeated {
            Repeated::Past => {}
            Repeated::Done => {
                self.group_mut(id).slots[slot].hear_again(child, Heard { carrier, attempt });
                self.send_result(id, slot, child)?;
            }
            Repeated::Waiting => {
                self.group_mut(id).slots[slot].hear_again(child, Heard { carrier, attempt });
                // Over the link nothing is lost, so there is nothing to be reassured of.
                if carrier == Carrier::Datagram {
                    self.stats.held += 1;
                    let sequence = part.sequence;
                    self.reply(id, child, Message::Held { sequence, attempt });
                }
            }
        }
        Ok(())
    }

    /// Every child has contributed: sends one request upward, or, at the root, the result down.
    fn complete(
        &mut self,
        now: Time,
        id: GroupId,
        slot_index: usize,
        payloads: &mut impl Payloads,
    ) {
        let group = self.group_mut(id);
        let place = group.accumulator(slot_index);
        let slot = &mut group.slots[slot_index];
        let mut part = slot.part.expect("a slot that completes is open");
        part.has_data = slot.has_data;
        if part.shape.operator().is_reduction() {
            payloads.finish(place, part.shape);
        }
        if group.parent.is_none() {
            let lacks_source = part.shape.operator() == Operator::Broadcast && !part.has_data;
            // All members mean the same, so if there is no such member, all of them are wrong.
            let lacks_target =
                matches!(part.target, Target::Member(member) if !group.has_member(member));
            if lacks_source || lacks_target {
                let at_fault = group.first_member();
                self.fail(id, Abort { reason: AbortReason::Disagreement, at_fault });
                return;
            }
            self.distribute(id, slot_index);
            return;
        }
        slot.phase = Phase::Forwarded;
        part.trail = Trail::default();
        let (port, header) =
            group.header_to_parent(Message::Request(part)).expect("the parent was just seen");
        if group.upward.carrier(part.shape.bytes()) == Carrier::Datagram {
            let was_asking = group.upward.is_waiting();
            group.upward.on_sent(now, part.sequence);
            self.note_asking(id, was_asking);
            self.transmit_datagram(port, header, part.has_data.then_some(place));
            return;
        }
        if !self.transmit(port, header, part.has_data.then_some(place)) {
            // The parent's link is stuck although every slot's request fits: count it as lost.
            let at_fault = self.group_mut(id).first_member();
            self.fail(id, Abort { reason: AbortReason::NodeLost, at_fault });
        }
    }
}

impl Group {
    fn contribute(
        &mut self,
        from: From,
        part: &Part,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<Outcome, FrameError> {
        let From { child, carrier } = from;
        if part.shape.bytes() > self.payload_max_bytes as usize {
            let bytes = part.shape.bytes() as u32;
            return Err(FrameError::TooLong { bytes, max_bytes: self.payload_max_bytes });
        }
        if self.children[usize::from(child.0)].has_left {
            return Err(FrameError::WrongPort);
        }
        let index = self.slot_index(part.sequence);
        if self.slots[index].is_past(part.sequence) {
            return Ok(Outcome::Repeat(Repeated::Past));
        }
        if !self.slots[index].holds(part.sequence)
            && let Some(abort) = self.open(index, part)?
        {
            return Ok(Outcome::Failed(abort));
        }
        let slot = &self.slots[index];
        if slot.has_arrived(child) {
            #[cfg(feature = "planted-double-count")]
            self.count_twice(index, child, payload, payloads);
            let is_done = self.slots[index].phase == Phase::Done;
            return Ok(Outcome::Repeat(if is_done { Repeated::Done } else { Repeated::Waiting }));
        }
        let brings_second_copy = part.has_data
            && part.shape.operator() == Operator::Broadcast
            && slot.data_from.is_some();
        if !slot.agrees_with(part) || brings_second_copy {
            let at_fault = self.children[usize::from(child.0)].members.start;
            return Ok(Outcome::Failed(Abort { reason: AbortReason::Disagreement, at_fault }));
        }
        self.slots[index].mark_arrived(child, Heard { carrier, attempt: part.trail.attempt });
        if part.shape.operator().is_reduction() {
            self.reduce(index, child, payload, payloads);
        } else if part.has_data {
            payloads.store(self.accumulator(index), payload);
            let slot = &mut self.slots[index];
            slot.has_data = true;
            slot.data_from = Some(child);
        }
        let is_complete = usize::from(self.slots[index].arrived_count()) == self.children.len();
        Ok(if is_complete { Outcome::Complete } else { Outcome::Gathering })
    }

    /// Opens a slot for a segment it doesn't hold yet, if the sender has the credit.
    fn open(&mut self, index: usize, part: &Part) -> Result<Option<Abort>, FrameError> {
        // The second condition follows from the first for every honest group; members in league
        // could still number their segments with gaps.
        if !self.has_credit(part.sequence) || !self.is_spent(&self.slots[index]) {
            let sequence = part.sequence.0;
            return Err(FrameError::OutsideWindow { sequence, osos: self.osos });
        }
        if let Some(gone) = self.children.iter().find(|child| child.has_left) {
            let at_fault = gone.members.start;
            return Ok(Some(Abort { reason: AbortReason::MemberLost, at_fault }));
        }
        self.slots[index].open(part);
        Ok(None)
    }

    /// The bug that the simulator's swarm has to find.
    #[cfg(feature = "planted-double-count")]
    fn count_twice(
        &mut self,
        index: usize,
        child: ChildIndex,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        let slot = &self.slots[index];
        let shape = slot.shape();
        let is_counted = child.0 < slot.next_child && slot.phase == Phase::Gathering;
        if is_counted && shape.operator().is_reduction() {
            payloads.fold(self.accumulator(index), shape, Source::Frame(payload));
        }
    }

    /// Reduces a contribution if it is its child's turn, and then every parked one whose turn it
    /// has become; parks it otherwise. So the order of reduction is the order of children, whatever
    /// the order of arrival.
    fn reduce(
        &mut self,
        index: usize,
        child: ChildIndex,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        let accumulator = self.accumulator(index);
        let shape = self.slots[index].shape();
        if child.0 != self.slots[index].next_child {
            payloads.park(self.parked(index, child), payload);
            return;
        }
        if child.0 == 0 {
            payloads.begin(accumulator, shape, Source::Frame(payload));
        } else {
            payloads.fold(accumulator, shape, Source::Frame(payload));
        }
        let mut next = child.0 + 1;
        while usize::from(next) < self.children.len()
            && self.slots[index].has_arrived(ChildIndex(next))
        {
            let parked = self.parked(index, ChildIndex(next));
            payloads.fold(accumulator, shape, Source::Parked(parked));
            next += 1;
        }
        let slot = &mut self.slots[index];
        slot.next_child = next;
        slot.has_data = true;
    }
}
