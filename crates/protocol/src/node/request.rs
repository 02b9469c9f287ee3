//! Contributions on their way up, reduced in child order.

use tributary_wire::frame::{Abort, AbortReason, Message, Part, RetransmitState};
use tributary_wire::{GroupId, Operator};

use super::group::PartKind;
use super::slot::{NewestAttempt, Phase};
use super::slots::{From, Outcome, Repeated};
use super::stream::GroupStream;
use super::{FrameError, Node};
use crate::payloads::Payloads;
use crate::{Carrier, Time};

impl Node {
    /// Takes one contribution.
    pub(super) fn handle_contribution(
        &mut self,
        id: GroupId,
        kind: PartKind,
        from: From,
        part: &Part,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        if kind == PartKind::Chunk && !self.admits_chunk(id, part)? {
            return Ok(());
        }
        let group = self.group_mut(id);
        let streams = |stream: &GroupStream| stream.is_requested(part.operation);
        if kind == PartKind::Segment && group.stream.as_ref().is_some_and(streams) {
            let at_fault = group.children[usize::from(from.child.0)].members.start;
            self.fail(id, Abort { reason: AbortReason::Disagreement, at_fault });
            return Ok(());
        }
        if kind == PartKind::Segment {
            self.open_past_external_receiver(id, part.sequence);
        }
        let (slots, children) = self.group_mut(id).window(kind);
        let outcome = slots.contribute(children, from, part, payload, payloads)?;
        let slot = slots.index_of(part.sequence);
        match outcome {
            Outcome::Gathering => self.on_counted(id, kind, from, part),
            Outcome::Repeat(repeated) => {
                self.outputs.stats.repeats += 1;
                self.answer_repeat(id, (kind, slot), from, part, repeated)?;
            }
            Outcome::Complete => {
                self.on_counted(id, kind, from, part);
                self.complete(from.now, id, kind, slot, payloads);
            }
            Outcome::Failed(abort) => self.fail(id, abort),
        }
        Ok(())
    }

    fn on_counted(&mut self, id: GroupId, kind: PartKind, from: From, part: &Part) {
        match kind {
            PartKind::Segment => {
                self.outputs.stats.requests += 1;
                self.send_nacks(id, from, part.sequence);
            }
            PartKind::Chunk => self.outputs.stats.chunks += 1,
        }
    }

    fn answer_repeat(
        &mut self,
        id: GroupId,
        (kind, index): (PartKind, usize),
        from: From,
        part: &Part,
        repeated: Repeated,
    ) -> Result<(), FrameError> {
        let From { child, carrier, .. } = from;
        let attempt = part.retransmit.attempt;
        if matches!(repeated, Repeated::Past) {
            return Ok(());
        }
        let slot = self.group_mut(id).window(kind).0.slot_mut(index);
        slot.note_repeat(child, NewestAttempt { carrier, attempt });
        match repeated {
            Repeated::Done => self.send_result(id, kind, index, child)?,
            // Nothing is lost on a link, so no ack is needed.
            Repeated::Waiting if carrier == Carrier::Datagram => {
                self.outputs.stats.acks += 1;
                let sequence = part.sequence;
                self.reply(id, child, Message::Ack { sequence, attempt });
            }
            Repeated::Waiting | Repeated::Past => {}
        }
        Ok(())
    }

    /// Every child has contributed: sends one request upward, or, at the root, the result down.
    fn complete(
        &mut self,
        now: Time,
        id: GroupId,
        kind: PartKind,
        index: usize,
        payloads: &mut impl Payloads,
    ) {
        let group = self.group_mut(id);
        let (slots, _) = group.window(kind);
        let place = slots.accumulator(index);
        let slot = slots.slot_mut(index);
        let mut part = slot.part.expect("a slot that completes is open");
        part.has_data = slot.has_data;
        slot.phase = Phase::Forwarded;
        if part.shape.operator().is_reduction() {
            payloads.finish(place, part.shape);
        }
        if group.parent.is_none() {
            let lacks_source = part.shape.operator() == Operator::Broadcast && !part.has_data;
            // All members agree on the operation, so if the target or source does not exist, all
            // are wrong.
            let lacks_target = part.target.member().is_some_and(|it| !group.has_member(it))
                || (part.target.has_external_receiver() && group.external_receiver.is_none());
            if lacks_source || lacks_target {
                let at_fault = group.first_member();
                self.fail(id, Abort { reason: AbortReason::Disagreement, at_fault });
                return;
            }
            self.distribute(id, kind, index);
            return;
        }
        self.send_to_parent(now, id, kind, index);
    }

    /// Sends the parent the contribution in a slot, for the first time.
    pub(super) fn send_to_parent(&mut self, now: Time, id: GroupId, kind: PartKind, index: usize) {
        let group = self.group_mut(id);
        let (slots, _) = group.window(kind);
        let place = slots.accumulator(index);
        let slot = &slots[index];
        let mut part = slot.part.expect("a slot that was forwarded is open");
        part.has_data = slot.has_data;
        part.retransmit = RetransmitState::default();
        let Some((port, header)) = group.header_to_parent(kind.upward(part)) else { return };
        if group.carrier_upward(kind, &part) == Carrier::Datagram {
            let was_waiting = group.upward.is_waiting();
            group.upward.on_sent(now, part.sequence);
            self.update_repeat_timer(id, was_waiting);
            self.outputs.transmit_datagram(port, header, part.has_data.then_some(place));
            return;
        }
        if !self.outputs.transmit(port, header, part.has_data.then_some(place)) {
            // Every slot's request fits the parent's link. If it is full, the parent does not read:
            // count it as lost.
            let at_fault = self.group_mut(id).first_member();
            self.fail(id, Abort { reason: AbortReason::NodeLost, at_fault });
        }
    }
}
