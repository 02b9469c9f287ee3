//! Results on their way down, from the root to every child.

use tributary_wire::frame::{AbortReason, EVERYONE, Header, Message, Part, RetransmitState};
use tributary_wire::{ChildIndex, Operator};

use super::child::Child;
use super::slot::{Phase, Slot};
use super::{Group, GroupError, PartKind};
use crate::node::FrameError;
use crate::node::outputs::Outputs;
use crate::node::planted_hooks;
use crate::node::port::PortId;
use crate::payloads::{Payloads, Place};
use crate::{Carrier, Time};

/// A result from the parent.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    pub(super) now: Time,
    pub(super) carrier: Carrier,
    pub(super) part: &'a Part,
}

impl Group {
    /// Takes one result.
    pub(super) fn handle_result(
        &mut self,
        out: &mut Outputs,
        kind: PartKind,
        answer: Answer<'_>,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), GroupError> {
        let Answer { now, carrier, part } = answer;
        if kind == PartKind::Chunk && !self.admits_chunk(out, part)? {
            return Ok(());
        }
        if carrier == Carrier::Datagram {
            self.upward.on_datagram(now);
        }
        let (slots, _) = self.window(kind);
        let index = slots.index_of(part.sequence);
        let place = slots.accumulator(index);
        let slot = slots.slot_mut(index);
        if slot.is_past(part.sequence) {
            out.stats.repeats += 1;
            return Ok(());
        }
        let is_awaited =
            slot.holds(part.sequence) && slot.phase != Phase::Gathering && slot.agrees_with(part);
        if !is_awaited {
            return Err(FrameError::Unexpected { sequence: part.sequence.0 }.into());
        }
        if slot.phase == Phase::Done {
            out.stats.repeats += 1;
            return Ok(());
        }
        slot.has_data = part.has_data;
        if part.has_data {
            payloads.store(place, payload);
        }
        if kind == PartKind::Segment {
            self.note_answered(out, answer);
            self.update_subscription(out, carrier, part);
        }
        self.distribute(out, kind, index)
    }

    /// Takes a frame that came by multicast.
    pub(in crate::node) fn handle_multicast(
        &mut self,
        out: &mut Outputs,
        now: Time,
        header: &Header,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), GroupError> {
        let unknown = FrameError::UnknownGroup { group: self.id, epoch: header.edge.epoch };
        let multicast = self.multicast.as_ref().ok_or(unknown)?;
        if self.epoch != header.edge.epoch {
            return Err(unknown.into());
        }
        if header.edge != self.edge(EVERYONE, multicast.capability()) {
            return Err(FrameError::Forged { group: self.id }.into());
        }
        if self.is_root() {
            // The root receives its own multicast.
            return Ok(());
        }
        let Message::Result(part) = header.message else {
            return Err(FrameError::WrongDirection.into());
        };
        let answer = Answer { now, carrier: Carrier::Multicast, part: &part };
        self.handle_result(out, PartKind::Segment, answer, payload, payloads)
    }

    /// Passes a result to loss recovery, and repeats what the result shows to be lost.
    fn note_answered(&mut self, out: &mut Outputs, answer: Answer<'_>) {
        let Answer { now, carrier, part } = answer;
        if !self.upward.is_waiting() {
            return;
        }
        let decided = self.upward.on_result(now, carrier, part.sequence, part.retransmit);
        if let Some(port) = self.parent_port() {
            out.report_datagrams(port, decided);
        }
        self.send_upward(out, now);
    }

    /// Hands the result in the slot's accumulator to every child.
    pub(super) fn distribute(
        &mut self,
        out: &mut Outputs,
        kind: PartKind,
        index: usize,
    ) -> Result<(), GroupError> {
        self.window(kind).0.slot_mut(index).phase = Phase::Done;
        match kind {
            PartKind::Segment => {
                self.advance_floor();
                if self.is_root() {
                    self.multicast_result(out, index);
                    self.send_to_external_receiver(out, index);
                }
                out.stats.results += 1;
            }
            PartKind::Chunk => {
                let stream = self.stream.as_mut().expect("chunks come to groups that may stream");
                stream.on_chunk_complete();
                out.stats.chunk_results += 1;
            }
        }
        for child in (0..self.children.len() as u16).map(ChildIndex) {
            if kind == PartKind::Segment && self.spares_copy(index, child) {
                out.stats.spared += 1;
                continue;
            }
            if self.send_result(out, kind, index, child).is_err() {
                return Err(self.child(child).abort(AbortReason::Misbehaved).into());
            }
        }
        Ok(())
    }

    /// Multicasts a result of the root, if multicast is in use.
    fn multicast_result(&mut self, out: &mut Outputs, index: usize) {
        let Some(multicast) = &self.multicast else { return };
        let slot = &self.slots[index];
        let mut part = slot.part.expect("a result's slot is open");
        if !multicast.sends(&part) {
            return;
        }
        part.has_data = slot.has_data;
        part.retransmit = RetransmitState { attempt: 0, behind: self.behind(part.sequence) };
        let edge = self.edge(EVERYONE, multicast.capability());
        let header = Header { edge, message: Message::Result(part) };
        let body = (header.payload_bytes() > 0).then(|| self.slots.accumulator(index));
        let has_subscriber = self.has_subscriber_below();
        let multicast = self.multicast.as_mut().expect("it was just seen");
        multicast.send(out, header, body, has_subscriber);
    }

    /// Sends the external receiver a result of the root, if it is among the targets.
    fn send_to_external_receiver(&mut self, out: &mut Outputs, index: usize) {
        let slot = &self.slots[index];
        let mut part = slot.part.expect("a result's slot is open");
        if !part.target.has_external_receiver() {
            return;
        }
        part.has_data = slot.has_data;
        part.retransmit = RetransmitState::default();
        let body = part.has_data.then(|| self.slots.accumulator(index));
        match &mut self.external_receiver {
            Some(external_receiver) => external_receiver.send(out, part, body),
            None => out.stats.external_missed += 1,
        }
    }

    /// Hands the result in the slot's accumulator to one child.
    pub(super) fn send_result(
        &mut self,
        out: &mut Outputs,
        kind: PartKind,
        index: usize,
        child: ChildIndex,
    ) -> Result<(), FrameError> {
        let (slots, children) = self.window(kind);
        let slot = &slots[index];
        let newest_attempt = slot.newest_attempt(child);
        let mut part = slot.part.expect("a result's slot is open");
        part.has_data = wants_data(slot, &part, child, &children[usize::from(child.0)]);
        let body = part.has_data.then(|| slots.accumulator(index));
        part.retransmit = match kind {
            PartKind::Segment => RetransmitState {
                attempt: newest_attempt.attempt,
                behind: self.behind(part.sequence),
            },
            PartKind::Chunk => RetransmitState::default(),
        };
        // A child that has left reads nothing more.
        let (Some(port), false) = (self.child(child).port, self.child(child).has_left) else {
            return Ok(());
        };
        let header = self.header_to_child(child, kind.downward(part));
        match newest_attempt.carrier {
            Carrier::Datagram | Carrier::Multicast => out.transmit_datagram(port, header, body),
            Carrier::Link if self.transmit_to_child(out, port, header, body) => {}
            Carrier::Link => return Err(FrameError::NotReading),
        }
        Ok(())
    }

    /// Queues a frame for a child's link, in place of results that nobody needs if there is no room. `false` if the child reads nothing.
    #[must_use]
    pub(super) fn transmit_to_child(
        &self,
        out: &mut Outputs,
        port: PortId,
        header: Header,
        body: Option<Place>,
    ) -> bool {
        if out.transmit(port, header, body) {
            return true;
        }
        self.forget_overtaken(out, port);
        out.transmit(port, header, body)
    }

    /// Whether a child gets no copy of a result, because it is subscribed and repeats lost
    /// requests.
    fn spares_copy(&self, index: usize, child: ChildIndex) -> bool {
        let slot = &self.slots[index];
        let (Some(multicast), Some(part)) = (&self.multicast, &slot.part) else { return false };
        // Only a child that sent its request by datagram repeats it.
        let repeats = slot.newest_attempt(child).carrier == Carrier::Datagram
            || planted_hooks::spares_any_copy();
        self.child(child).is_subscribed() && repeats && multicast.carries(part)
    }

    /// Drops results that wait for a port's link and that nobody needs any more. A child whose
    /// members receive multicast goes on before it has read its copies.
    fn forget_overtaken(&self, out: &mut Outputs, port: PortId) {
        let slots = &self.slots;
        out.outbox_mut(port).retain(|queued| match queued.header.message {
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
