//! Contributions on their way up, reduced in child order.

use tributary_wire::Operator;
use tributary_wire::frame::{Abort, AbortReason, Message, Part, RetransmitState};

use super::slot::{NewestAttempt, Phase};
use super::slots::{Origin, Outcome, Repeated};
use super::{Group, GroupError, PartKind};
use crate::node::outputs::Outputs;
use crate::payloads::Payloads;
use crate::{Carrier, Time};

impl Group {
    /// Takes one contribution.
    pub(super) fn handle_contribution(
        &mut self,
        out: &mut Outputs,
        kind: PartKind,
        origin: Origin,
        part: &Part,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), GroupError> {
        match kind {
            PartKind::Chunk if !self.admits_chunk(out, part)? => return Ok(()),
            PartKind::Chunk => {}
            PartKind::Segment => self.prepare_for_segment(out, origin, part)?,
        }
        let (slots, children) = self.window(kind);
        let outcome = slots.contribute(children, origin, part, payload, payloads)?;
        let index = slots.index_of(part.sequence);
        match outcome {
            Outcome::Gathering => {
                self.note_counted(out, kind, origin, part);
                Ok(())
            }
            Outcome::Repeat(repeated) => {
                out.stats.repeats += 1;
                self.answer_repeat(out, (kind, index), origin, part, repeated)
            }
            Outcome::Complete => {
                self.note_counted(out, kind, origin, part);
                self.complete(out, origin.now, kind, index, payloads)
            }
        }
    }

    /// Refuses to take an operation in segments that other children stream, and drops an external receiver that the
    /// segment would overtake.
    fn prepare_for_segment(
        &mut self,
        out: &mut Outputs,
        origin: Origin,
        part: &Part,
    ) -> Result<(), GroupError> {
        if self.stream.as_ref().is_some_and(|stream| stream.is_requested(part.operation)) {
            return Err(self.child(origin.child).abort(AbortReason::Disagreement).into());
        }
        if let Some(external_receiver) = &mut self.external_receiver {
            let index = self.slots.index_of(part.sequence);
            if !self.slots[index].holds(part.sequence) {
                external_receiver.drop_if_awaiting(out, self.slots.accumulator(index));
            }
        }
        Ok(())
    }

    fn note_counted(&mut self, out: &mut Outputs, kind: PartKind, origin: Origin, part: &Part) {
        match kind {
            PartKind::Segment => {
                out.stats.requests += 1;
                self.send_nacks(out, origin, part.sequence);
            }
            PartKind::Chunk => out.stats.chunks += 1,
        }
    }

    fn answer_repeat(
        &mut self,
        out: &mut Outputs,
        (kind, index): (PartKind, usize),
        origin: Origin,
        part: &Part,
        repeated: Repeated,
    ) -> Result<(), GroupError> {
        let Origin { child, carrier, .. } = origin;
        let attempt = part.retransmit.attempt;
        if matches!(repeated, Repeated::Past) {
            return Ok(());
        }
        let slot = self.window(kind).0.slot_mut(index);
        slot.note_repeat(child, NewestAttempt { carrier, attempt });
        match repeated {
            Repeated::Done => self.send_result(out, kind, index, child)?,
            // Nothing is lost on a link, so no ack is needed.
            Repeated::Waiting if carrier == Carrier::Datagram => {
                out.stats.acks += 1;
                let sequence = part.sequence;
                self.reply(out, child, Message::Ack { sequence, attempt });
            }
            Repeated::Waiting | Repeated::Past => {}
        }
        Ok(())
    }

    /// Every child has contributed: sends one request upward, or, at the root, the result down.
    fn complete(
        &mut self,
        out: &mut Outputs,
        now: Time,
        kind: PartKind,
        index: usize,
        payloads: &mut impl Payloads,
    ) -> Result<(), GroupError> {
        let (slots, _) = self.window(kind);
        let place = slots.accumulator(index);
        let slot = slots.slot_mut(index);
        let mut part = slot.part.expect("a slot that completes is open");
        part.has_data = slot.has_data;
        slot.phase = Phase::Forwarded;
        if part.shape.operator().is_reduction() {
            payloads.finish(place, part.shape);
        }
        if !self.is_root() {
            return self.send_to_parent(out, now, kind, index);
        }
        let lacks_source = part.shape.operator() == Operator::Broadcast && !part.has_data;
        // All members agree on the operation, so if the target or source does not exist, all
        // are wrong.
        let lacks_target = part.target.member().is_some_and(|it| !self.has_member(it))
            || (part.target.has_external_receiver() && self.external_receiver.is_none());
        if lacks_source || lacks_target {
            return Err(self.abort(AbortReason::Disagreement).into());
        }
        self.distribute(out, kind, index)
    }

    /// Sends the parent the contribution in a slot, for the first time.
    pub(super) fn send_to_parent(
        &mut self,
        out: &mut Outputs,
        now: Time,
        kind: PartKind,
        index: usize,
    ) -> Result<(), GroupError> {
        let (slots, _) = self.window(kind);
        let place = slots.accumulator(index);
        let slot = &slots[index];
        let mut part = slot.part.expect("a slot that was forwarded is open");
        part.has_data = slot.has_data;
        part.retransmit = RetransmitState::default();
        let body = part.has_data.then_some(place);
        let Some((port, header)) = self.header_to_parent(kind.upward(part)) else { return Ok(()) };
        if self.carrier_upward(kind, &part) == Carrier::Datagram {
            self.upward.on_sent(now, part.sequence);
            out.transmit_datagram(port, header, body);
        } else if !out.transmit(port, header, body) {
            return Err(self.abort_unread_by_parent().into());
        }
        Ok(())
    }

    /// The group's end because the parent's link is full. All that an honest aggregator has queued there fits, so the
    /// parent does not read: it counts as lost.
    pub(super) fn abort_unread_by_parent(&self) -> Abort {
        self.abort(AbortReason::NodeLost)
    }
}
