//! Results for a group's external receiver, at the group's root.
//!
//! The external receiver joins over its own link, as often as it likes, with a capability that only
//! lets it read. The group never waits for it. It misses results that complete while it is away. If
//! a slot is needed again before its result was sent to the external receiver, the root drops the
//! external receiver. Both are counted.

use tributary_wire::frame::{
    Abort, AbortReason, EXTERNAL_RECEIVER, Header, Message, RetransmitState,
};
use tributary_wire::{Capability, GroupId, Sequence};

use super::group::Group;
use super::port::{PortId, Role};
use super::{FrameError, Node};

/// The place of an external receiver.
#[derive(Debug)]
pub(super) struct ExternalReceiver {
    capability: Capability,
    /// Its link, while it is joined.
    pub(super) port: Option<PortId>,
}

impl Node {
    /// Lets a process that shows `capability` read the group's results. To be called at the group's
    /// root, right after the install.
    pub fn admit_external_receiver(&mut self, group: GroupId, capability: Capability) {
        let Some(Some(found)) = self.groups.get_mut(group.0 as usize) else { return };
        found.external_receiver = Some(ExternalReceiver { capability, port: None });
    }

    /// Takes a join as a group's external receiver.
    pub(super) fn handle_external_receiver_join(
        &mut self,
        port: PortId,
        header: &Header,
    ) -> Result<(), FrameError> {
        let id = header.edge.group;
        let group = self.group_mut(id);
        let (frames, reply) =
            (group.outbox_frames(), group.header_to_external_receiver(Message::Joined));
        // The same error as for a wrong capability, so that a stranger learns nothing about the
        // group.
        let reply = reply.filter(|reply| reply.edge == header.edge);
        let reply = reply.ok_or(FrameError::Forged { group: id })?;
        let external_receiver =
            group.external_receiver.as_mut().expect("it has the header's capability");
        if external_receiver.port.is_some() {
            return Err(FrameError::AlreadyJoined { group: id, child: EXTERNAL_RECEIVER.0 });
        }
        external_receiver.port = Some(port);
        self.outputs.bind(port, Role::ExternalReceiver { group: id }, frames);
        let is_queued = self.outputs.transmit(port, reply, None);
        debug_assert!(is_queued, "a port just bound has room");
        Ok(())
    }

    /// Takes a frame from the external receiver, which may only leave.
    pub(super) fn handle_external_receiver_message(
        &mut self,
        id: GroupId,
        header: &Header,
    ) -> Result<(), FrameError> {
        let leave = self.group_mut(id).header_to_external_receiver(Message::Leave);
        if Some(*header) != leave {
            return Err(FrameError::WrongDirection);
        }
        self.dismiss_external_receiver(id, None);
        Ok(())
    }

    /// Sends the external receiver the result in a slot, if the result has it as a target.
    pub(super) fn send_to_external_receiver(&mut self, id: GroupId, index: usize) {
        let group = self.group_mut(id);
        let slot = &group.slots[index];
        let mut part = slot.part.expect("a result's slot is open");
        if group.parent.is_some() || !part.target.has_external_receiver() {
            return;
        }
        part.has_data = slot.has_data;
        part.retransmit = RetransmitState::default();
        let body = part.has_data.then(|| group.slots.accumulator(index));
        let port =
            group.external_receiver.as_ref().and_then(|external_receiver| external_receiver.port);
        let header = group.header_to_external_receiver(Message::Result(part));
        let (Some(port), Some(header)) = (port, header) else {
            self.outputs.stats.external_missed += 1;
            return;
        };
        if self.outputs.transmit(port, header, body) {
            self.outputs.stats.external_results += 1;
        } else {
            self.drop_external_receiver(id);
        }
    }

    /// Drops the external receiver if the slot of `sequence` is about to be used again and its
    /// result has not been sent to it yet.
    pub(super) fn open_past_external_receiver(&mut self, id: GroupId, sequence: Sequence) {
        let group = self.group_mut(id);
        let Some(port) =
            group.external_receiver.as_ref().and_then(|external_receiver| external_receiver.port)
        else {
            return;
        };
        let index = group.slots.index_of(sequence);
        let place = group.slots.accumulator(index);
        if group.slots[index].holds(sequence) {
            return;
        }
        let waits = self.outputs.outbox(port).iter().any(|it| it.body == Some(place));
        if waits {
            self.drop_external_receiver(id);
        }
    }

    fn drop_external_receiver(&mut self, id: GroupId) {
        self.outputs.stats.external_dropped += 1;
        let at_fault = self.group_mut(id).first_member();
        let abort = Abort { reason: AbortReason::FellBehind, at_fault };
        self.dismiss_external_receiver(id, Some(Message::Abort(abort)));
    }

    fn dismiss_external_receiver(&mut self, id: GroupId, last_message: Option<Message>) {
        let group = self.group_mut(id);
        let last_message =
            last_message.and_then(|message| group.header_to_external_receiver(message));
        if let Some(port) = group
            .external_receiver
            .as_mut()
            .and_then(|external_receiver| external_receiver.port.take())
        {
            self.outputs.retire(port, last_message);
        }
    }

    /// Tells the external receiver that its group is gone. If a group ends while results still wait
    /// to be sent, the external receiver was too slow: the next group uses that memory.
    pub(super) fn tell_external_receiver(&mut self, group: &Group, abort: Option<Abort>) {
        let Some(port) =
            group.external_receiver.as_ref().and_then(|external_receiver| external_receiver.port)
        else {
            return;
        };
        let waits = self.outputs.outbox(port).iter().any(|queued| queued.body.is_some());
        let at_fault = group.first_member();
        let fell_behind = waits.then_some(Abort { reason: AbortReason::FellBehind, at_fault });
        let message = abort.or(fell_behind).map_or(Message::Leave, Message::Abort);
        self.outputs.retire(port, group.header_to_external_receiver(message));
    }
}

impl Group {
    /// A frame for the external receiver; none if the group has no place for one.
    fn header_to_external_receiver(&self, message: Message) -> Option<Header> {
        let capability = self.external_receiver.as_ref()?.capability;
        Some(Header { edge: self.edge(EXTERNAL_RECEIVER, capability), message })
    }
}
