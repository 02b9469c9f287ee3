//! Frames from a group's children and from its parent: each goes to what the group has for it.

use core::num::NonZeroU16;

use tributary_wire::OperationNumber;
use tributary_wire::frame::{Header, Message};

use super::results::Answer;
use super::slots::Origin;
use super::{Group, GroupError, PartKind};
use crate::node::FrameError;
use crate::node::outputs::Outputs;
use crate::payloads::Payloads;
use crate::{Carrier, Time};

/// What a group has to know of its aggregator.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::node) struct NodeState {
    /// How many groups have failed because an aggregator of theirs was lost.
    pub(in crate::node) losses: u64,
    /// The UDP port at which the aggregator takes datagrams, if it does.
    pub(in crate::node) datagram_port: Option<NonZeroU16>,
}

/// What the aggregator has to do after a group has taken a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Consequence {
    /// Nothing.
    None,
    /// End the group, because all its children have left.
    GroupEnds,
    /// Let the group wait for the stream lock.
    AwaitsLock,
    /// Give the stream lock to the next group, because all below have their results of this operation.
    StreamEnds(OperationNumber),
    /// Fail all groups that have this one's parent.
    ParentLost,
}

impl Group {
    /// Takes a frame from a child.
    pub(in crate::node) fn handle_child_frame(
        &mut self,
        out: &mut Outputs,
        origin: Origin,
        node: &NodeState,
        header: &Header,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<Consequence, GroupError> {
        self.check_edge(header, origin.child)?;
        match (&header.message, origin.carrier) {
            (Message::Request(part), Carrier::Link | Carrier::Datagram) => {
                let kind = PartKind::Segment;
                self.handle_contribution(out, kind, origin, part, payload, payloads)?;
            }
            (Message::Chunk(part), Carrier::Link) => {
                let kind = PartKind::Chunk;
                self.handle_contribution(out, kind, origin, part, payload, payloads)?;
            }
            (message, Carrier::Link) => {
                return self.handle_child_message(out, origin, node, message);
            }
            (Message::Probe(attempt), Carrier::Datagram) => {
                self.reply(out, origin.child, Message::Probed(*attempt));
            }
            (_, Carrier::Datagram | Carrier::Multicast) => {
                return Err(FrameError::WrongCarrier.into());
            }
        }
        Ok(Consequence::None)
    }

    /// Takes any message from a child's link except contributions.
    fn handle_child_message(
        &mut self,
        out: &mut Outputs,
        origin: Origin,
        node: &NodeState,
        message: &Message,
    ) -> Result<Consequence, GroupError> {
        let Origin { now, child, .. } = origin;
        match *message {
            Message::StreamRequest(ref request) => {
                return self.handle_stream_request(out, child, request);
            }
            Message::StreamDone(operation) => {
                return Ok(self.handle_stream_done(out, child, operation)?);
            }
            Message::Leave => return self.handle_leave(out, child),
            Message::Probe(number) => {
                return Ok(self.answer_question(out, now, child, number, node.losses));
            }
            Message::Abort(abort) => return Err(abort.into()),
            Message::Datagrams(theirs) => {
                self.handle_offer(out, child, theirs, node.datagram_port);
            }
            Message::Subscribed(subscription) => {
                self.handle_subscribed(out, child, subscription);
            }
            Message::Join => {
                return Err(FrameError::AlreadyJoined { group: self.id, child: child.0 }.into());
            }
            _ => return Err(FrameError::WrongDirection.into()),
        }
        Ok(Consequence::None)
    }

    /// Takes a frame from the parent.
    #[expect(clippy::too_many_arguments)]
    pub(in crate::node) fn handle_parent_frame(
        &mut self,
        out: &mut Outputs,
        now: Time,
        carrier: Carrier,
        node: &NodeState,
        header: &Header,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<Consequence, GroupError> {
        self.check_parent_edge(header)?;
        self.parent_liveness.on_frame();
        self.losses_at_parent_frame = node.losses;
        match (&header.message, carrier) {
            (Message::Result(part), Carrier::Link | Carrier::Datagram) => {
                let answer = Answer { now, carrier, part };
                self.handle_result(out, PartKind::Segment, answer, payload, payloads)?;
            }
            (Message::ChunkResult(part), Carrier::Link) => {
                let answer = Answer { now, carrier, part };
                self.handle_result(out, PartKind::Chunk, answer, payload, payloads)?;
            }
            (message, Carrier::Link) => return self.handle_parent_message(out, now, message),
            (message, Carrier::Datagram) => self.handle_parent_datagram(out, now, message)?,
            (_, Carrier::Multicast) => return Err(FrameError::WrongCarrier.into()),
        }
        Ok(Consequence::None)
    }

    /// Takes any message from the parent's link except results.
    fn handle_parent_message(
        &mut self,
        out: &mut Outputs,
        now: Time,
        message: &Message,
    ) -> Result<Consequence, GroupError> {
        match *message {
            Message::StreamGrant(operation) => return Ok(self.handle_stream_grant(operation)?),
            // It answers a question, and has said so by coming.
            Message::Joined | Message::Probed(_) => {}
            Message::Abort(abort) => return Err(abort.into()),
            Message::Leave => return self.handle_leave_down(),
            Message::Datagrams(theirs) => self.handle_answered_offer(out, now, theirs),
            Message::Ack { .. } | Message::Nack { .. } => {
                return Err(FrameError::WrongCarrier.into());
            }
            _ => return Err(FrameError::WrongDirection.into()),
        }
        Ok(Consequence::None)
    }
}
