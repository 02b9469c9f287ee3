//! Messages of a group's streams: a vector's request and grant, its chunks' admission, its end.

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, AbortReason, Message, Part, StreamRequest};
use tributary_wire::{ChildIndex, OperationNumber};

use super::slots::Slots;
use super::stream::{PendingStage, Progress};
use super::{Consequence, Group, GroupError};
use crate::node::FrameError;
use crate::node::outputs::Outputs;

impl Group {
    /// Takes a child's request to stream a vector. Once all have sent it, it goes to the parent; the root waits for
    /// its lock.
    pub(super) fn handle_stream_request(
        &mut self,
        out: &mut Outputs,
        child: ChildIndex,
        request: &StreamRequest,
    ) -> Result<Consequence, GroupError> {
        match self.note_request(child, request)? {
            Progress::Waiting => {}
            Progress::Repeat => out.stats.repeats += 1,
            Progress::All if self.is_root() => {
                self.set_pending_stage(PendingStage::Queued);
                return Ok(Consequence::AwaitsLock);
            }
            Progress::All => {
                self.set_pending_stage(PendingStage::Forwarded);
                if !self.tell_parent(out, Message::StreamRequest(*request)) {
                    return Err(self.abort_unread_by_parent().into());
                }
            }
        }
        Ok(Consequence::None)
    }

    fn note_request(
        &mut self,
        child: ChildIndex,
        request: &StreamRequest,
    ) -> Result<Progress, GroupError> {
        let operation = request.operation;
        let children = &self.children;
        let sender = &children[usize::from(child.0)];
        let stream = self.stream.as_mut().ok_or(FrameError::StreamNotGranted { operation })?;
        if sender.has_left {
            return Err(FrameError::WrongPort.into());
        }
        if stream.is_over(operation) || stream.is_running(operation) {
            return Ok(Progress::Repeat);
        }
        match stream.pending() {
            // Another child sends this operation's vector in segments.
            None if self.slots.iter().any(|slot| slot.is_of(operation)) => {
                return Err(sender.abort(AbortReason::Disagreement).into());
            }
            None => {
                stream.begin_request(request)?;
                if let Some(gone) = children.iter().find(|child| child.has_left) {
                    return Err(gone.abort(AbortReason::MemberLost).into());
                }
            }
            Some((pending, _)) if pending != request => {
                return Err(sender.abort(AbortReason::Disagreement).into());
            }
            Some(_) => {}
        }
        Ok(stream.mark_requested(child, children.len()))
    }

    fn set_pending_stage(&mut self, stage: PendingStage) {
        let stream = self.stream.as_mut();
        stream.expect("the caller has seen the pending stream").set_pending_stage(stage);
    }

    /// The parent has its lock; this aggregator's lock is next.
    pub(super) fn handle_stream_grant(
        &mut self,
        operation: OperationNumber,
    ) -> Result<Consequence, FrameError> {
        match self.stream.as_ref().and_then(|stream| stream.pending()) {
            Some((request, PendingStage::Forwarded)) if request.operation == operation => {
                self.set_pending_stage(PendingStage::Queued);
                Ok(Consequence::AwaitsLock)
            }
            _ => Err(FrameError::StreamNotGranted { operation }),
        }
    }

    /// Whether a chunk, or a chunk's result, belongs to the stream that runs. Late copies are
    /// counted.
    pub(super) fn admits_chunk(&self, out: &mut Outputs, part: &Part) -> Result<bool, FrameError> {
        let not_granted = FrameError::StreamNotGranted { operation: part.operation };
        let is_running = self.stream.as_ref().ok_or(not_granted)?.admit(part)?;
        out.stats.repeats += u64::from(!is_running);
        Ok(is_running)
    }

    /// A child has all results of the stream.
    pub(super) fn handle_stream_done(
        &mut self,
        out: &mut Outputs,
        child: ChildIndex,
        operation: OperationNumber,
    ) -> Result<Consequence, FrameError> {
        let children = self.children.len();
        let stream = self.stream.as_mut().ok_or(FrameError::StreamNotGranted { operation })?;
        match stream.mark_done(child, operation, children)? {
            Progress::All => return Ok(Consequence::StreamEnds(operation)),
            Progress::Repeat => out.stats.repeats += 1,
            Progress::Waiting => {}
        }
        Ok(Consequence::None)
    }

    /// Starts the pending stream in the tree's slots, and tells the children. If one reads nothing, the group fails.
    pub(in crate::node) fn start_stream(
        &mut self,
        out: &mut Outputs,
        slots: Box<Slots>,
    ) -> Result<(), Abort> {
        let stream = self.stream.as_mut().expect("only groups that may stream wait for locks");
        stream.start(slots);
        let message = Message::StreamGrant(stream.operation());
        for (index, child) in self.children.iter().enumerate() {
            let header = self.header_to_child(ChildIndex(index as u16), message);
            let is_queued =
                child.port.is_some_and(|port| self.transmit_to_child(out, port, header, None));
            if !is_queued {
                return Err(child.abort(AbortReason::MemberLost));
            }
        }
        Ok(())
    }

    /// Ends the stream that runs, if one does, and gives its slots back. Queued answers to repeats are dropped,
    /// because they would show the next group's data.
    pub(in crate::node) fn stop_stream(&mut self, out: &mut Outputs) -> Option<Box<Slots>> {
        let slots = self.stream.as_mut()?.stop()?;
        let ports = self.children.iter().filter_map(|child| child.port);
        for port in ports.chain(self.parent_port()) {
            out.outbox_mut(port).forget(slots.arena_id());
        }
        Some(slots)
    }

    /// Tells the parent that all below have all results of a stream.
    pub(in crate::node) fn report_stream_end(
        &self,
        out: &mut Outputs,
        operation: OperationNumber,
    ) -> Result<(), Abort> {
        let is_told = self.tell_parent(out, Message::StreamDone(operation));
        if is_told { Ok(()) } else { Err(self.abort_unread_by_parent()) }
    }
}
