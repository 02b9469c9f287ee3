//! Results for a process outside the group, at the group's root.
//!
//! It joins over a link of its own, with a capability that lets it read and nothing else, whenever it
//! likes and as often as it likes. The group never waits for it: what is completed while it is away
//! it misses, and if it reads so slowly that a slot is needed whose result it has not been sent, it
//! loses its place. Both are counted.

use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Message, OUTSIDER, Trail};
use tributary_wire::{Capability, GroupId, Sequence};

use super::group::Group;
use super::port::{PortId, Role};
use super::{FrameError, Node};

/// The place of a process outside the group.
#[derive(Debug)]
pub(super) struct Outsider {
    capability: Capability,
    /// Its link, while it is there.
    pub(super) port: Option<PortId>,
}

impl Node {
    /// Lets results of a group go to a process outside it that shows `capability`. At the group's
    /// root, right after the install.
    pub fn admit_outsider(&mut self, group: GroupId, capability: Capability) {
        let Some(Some(found)) = self.groups.get_mut(group.0 as usize) else { return };
        found.outsider = Some(Outsider { capability, port: None });
    }

    /// Takes the join of whoever says that it is a group's outsider.
    pub(super) fn handle_outsiders_join(
        &mut self,
        port: PortId,
        header: &Header,
    ) -> Result<(), FrameError> {
        let id = header.edge.group;
        let group = self.group_mut(id);
        let (frames, reply) = (group.outbox_frames(), group.header_to_outsider(Message::Joined));
        // Said like a wrong capability, so that a stranger learns nothing of the group.
        let reply = reply.filter(|reply| reply.edge == header.edge);
        let reply = reply.ok_or(FrameError::Forged { group: id })?;
        let outsider = group.outsider.as_mut().expect("it has the header's capability");
        if outsider.port.is_some() {
            return Err(FrameError::AlreadyJoined { group: id, child: OUTSIDER.0 });
        }
        outsider.port = Some(port);
        self.bind(port, Role::Outsider { group: id }, frames);
        let is_queued = self.transmit(port, reply, None);
        debug_assert!(is_queued, "a port just bound has room");
        Ok(())
    }

    /// Takes what the outsider says: that it goes. It has nothing else to say.
    pub(super) fn handle_outsiders_word(
        &mut self,
        id: GroupId,
        header: &Header,
    ) -> Result<(), FrameError> {
        let leave = self.group_mut(id).header_to_outsider(Message::Leave);
        if Some(*header) != leave {
            return Err(FrameError::WrongDirection);
        }
        self.dismiss_outsider(id, None);
        Ok(())
    }

    /// Sends the outsider the result in a slot, if it is one of the result's targets.
    pub(super) fn send_to_outsider(&mut self, id: GroupId, index: usize) {
        let group = self.group_mut(id);
        let slot = &group.slots[index];
        let mut part = slot.part.expect("a result's slot is open");
        if group.parent.is_some() || !part.target.has_outsider() {
            return;
        }
        part.has_data = slot.has_data;
        part.trail = Trail::default();
        let body = part.has_data.then(|| group.slots.accumulator(index));
        let port = group.outsider.as_ref().and_then(|outsider| outsider.port);
        let header = group.header_to_outsider(Message::Result(part));
        let (Some(port), Some(header)) = (port, header) else {
            self.stats.outsider_missed += 1;
            return;
        };
        if self.transmit(port, header, body) {
            self.stats.outsider_results += 1;
        } else {
            self.drop_outsider(id);
        }
    }

    /// Before a slot is opened for `sequence`: the outsider loses its place if it has not been sent
    /// yet what the slot holds.
    pub(super) fn open_past_outsider(&mut self, id: GroupId, sequence: Sequence) {
        let group = self.group_mut(id);
        let Some(port) = group.outsider.as_ref().and_then(|outsider| outsider.port) else { return };
        let index = group.slots.index_of(sequence);
        let place = group.slots.accumulator(index);
        if group.slots[index].holds(sequence) {
            return;
        }
        let waits = self.ports[port.0 as usize].outbox.iter().any(|it| it.body == Some(place));
        if waits {
            self.drop_outsider(id);
        }
    }

    fn drop_outsider(&mut self, id: GroupId) {
        self.stats.outsiders_dropped += 1;
        let at_fault = self.group_mut(id).first_member();
        let abort = Abort { reason: AbortReason::FellBehind, at_fault };
        self.dismiss_outsider(id, Some(Message::Abort(abort)));
    }

    fn dismiss_outsider(&mut self, id: GroupId, last_word: Option<Message>) {
        let group = self.group_mut(id);
        let last_word = last_word.and_then(|message| group.header_to_outsider(message));
        if let Some(port) = group.outsider.as_mut().and_then(|outsider| outsider.port.take()) {
            self.retire(port, last_word);
        }
    }

    /// Tells the outsider of a group that is gone. One that has ended has nothing more for it, unless
    /// results of it still wait: they lie in memory that is the next group's.
    pub(super) fn tell_outsider(&mut self, group: &Group, abort: Option<Abort>) {
        let Some(port) = group.outsider.as_ref().and_then(|outsider| outsider.port) else { return };
        let waits = self.ports[port.0 as usize].outbox.iter().any(|queued| queued.body.is_some());
        let at_fault = group.first_member();
        let fell_behind = waits.then_some(Abort { reason: AbortReason::FellBehind, at_fault });
        let word = abort.or(fell_behind).map_or(Message::Leave, Message::Abort);
        self.retire(port, group.header_to_outsider(word));
    }
}

impl Group {
    /// A frame for the outsider; none if the group has no place for one.
    fn header_to_outsider(&self, message: Message) -> Option<Header> {
        let capability = self.outsider.as_ref()?.capability;
        let edge = Edge { group: self.id, epoch: self.epoch, child: OUTSIDER, capability };
        Some(Header { edge, message })
    }
}
