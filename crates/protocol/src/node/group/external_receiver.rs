//! Results for a group's external receiver, at the group's root.
//!
//! The external receiver joins over its own link, as often as it likes, with a capability that only
//! lets it read. The group never waits for it. It misses results that complete while it is away. If
//! a slot is needed again before its result was sent to the external receiver, the root drops the
//! external receiver. Both are counted.

use tributary_wire::EndpointId;
use tributary_wire::frame::{Abort, AbortReason, EXTERNAL_RECEIVER, Edge, Header, Message, Part};

use crate::node::FrameError;
use crate::node::outputs::Outputs;
use crate::node::port::{PortId, Role};
use crate::payloads::Place;

/// The place of an external receiver.
#[derive(Debug)]
pub(super) struct ExternalReceiver {
    edge: Edge,
    /// Its link, while it is joined.
    port: Option<PortId>,
    /// The member that is named when it is dropped.
    first_member: EndpointId,
}

impl ExternalReceiver {
    /// A place that is free, for a process whose frames have this edge.
    pub(super) fn new(edge: Edge, first_member: EndpointId) -> Self {
        Self { edge, port: None, first_member }
    }

    /// Takes a join, and binds the link with room for `frames`.
    pub(super) fn handle_join(
        &mut self,
        out: &mut Outputs,
        port: PortId,
        header: &Header,
        frames: u16,
    ) -> Result<(), FrameError> {
        let group = self.edge.group;
        if header.edge != self.edge {
            // The same error as for a wrong capability, so that a stranger learns nothing about the
            // group.
            return Err(FrameError::Forged { group });
        }
        if self.port.is_some() {
            return Err(FrameError::AlreadyJoined { group, child: EXTERNAL_RECEIVER.0 });
        }
        self.port = Some(port);
        out.bind(port, Role::ExternalReceiver { group }, frames);
        let is_queued = out.transmit(port, self.header(Message::Joined), None);
        debug_assert!(is_queued, "a port just bound has room");
        Ok(())
    }

    /// Takes a frame from it, which may only leave.
    pub(super) fn handle_message(
        &mut self,
        out: &mut Outputs,
        header: &Header,
    ) -> Result<(), FrameError> {
        if *header != self.header(Message::Leave) {
            return Err(FrameError::WrongDirection);
        }
        self.dismiss(out, None);
        Ok(())
    }

    /// Its link is gone.
    pub(super) fn on_closed(&mut self) {
        self.port = None;
    }

    /// Sends it a result.
    pub(super) fn send(&mut self, out: &mut Outputs, part: Part, body: Option<Place>) {
        let Some(port) = self.port else {
            out.stats.external_missed += 1;
            return;
        };
        if out.transmit(port, self.header(Message::Result(part)), body) {
            out.stats.external_results += 1;
        } else {
            self.drop(out);
        }
    }

    /// Drops it if the result in this place has not been sent to it yet: the place is about to be used again.
    pub(super) fn drop_if_awaiting(&mut self, out: &mut Outputs, place: Place) {
        let Some(port) = self.port else { return };
        if out.outbox(port).iter().any(|queued| queued.body == Some(place)) {
            self.drop(out);
        }
    }

    /// Tells it that its group is gone. If a group ends while results still wait to be sent, the external receiver
    /// was too slow: the next group uses that memory.
    pub(super) fn announce_end(&self, out: &mut Outputs, abort: Option<Abort>) {
        let Some(port) = self.port else { return };
        let awaits_result = out.outbox(port).iter().any(|queued| queued.body.is_some());
        let fell_behind = awaits_result.then_some(self.fell_behind());
        let message = abort.or(fell_behind).map_or(Message::Leave, Message::Abort);
        out.retire(port, Some(self.header(message)));
    }

    fn drop(&mut self, out: &mut Outputs) {
        out.stats.external_dropped += 1;
        self.dismiss(out, Some(Message::Abort(self.fell_behind())));
    }

    fn dismiss(&mut self, out: &mut Outputs, last_message: Option<Message>) {
        if let Some(port) = self.port.take() {
            out.retire(port, last_message.map(|message| self.header(message)));
        }
    }

    fn fell_behind(&self) -> Abort {
        Abort { reason: AbortReason::FellBehind, at_fault: self.first_member }
    }

    fn header(&self, message: Message) -> Header {
        Header { edge: self.edge, message }
    }
}
