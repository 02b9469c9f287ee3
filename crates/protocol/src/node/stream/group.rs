//! A group's streaming state at one node: the stream it requests, the stream that runs, and which
//! children have sent what.

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, AbortReason, Part, StreamRequest};
use tributary_wire::{ChildIndex, OperationNumber, TreeId};

use super::super::FrameError;
use super::super::arrivals::Arrivals;
use super::super::config::StreamConfig;
use super::super::group::Group;
use super::super::slots::{Slots, slots_for};
use crate::StreamTerms;
use crate::stream::{Cut, chunk_of};

/// A group's streaming state at one node.
#[derive(Debug)]
pub(in crate::node) struct GroupStream {
    pub(in crate::node) tree: TreeId,
    terms: StreamTerms,
    pub(in crate::node) pending: Option<PendingStream>,
    /// Present while the group has the stream lock.
    pub(in crate::node) active: Option<ActiveStream>,
    /// The operation that streams now or streamed last.
    pub(in crate::node) newest: Option<OperationNumber>,
    /// Children that have sent the pending stream request.
    requested: Arrivals,
    /// Children that are done with the active stream.
    done: Arrivals,
}

/// A stream that was requested and not granted.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct PendingStream {
    pub(in crate::node) cut: Cut,
    pub(in crate::node) stage: PendingStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum PendingStage {
    /// Not all children have sent the request.
    Gathering,
    /// The request was sent to the parent.
    Forwarded,
    /// The group waits for this node's lock.
    Queued,
}

/// The stream that runs.
#[derive(Debug)]
pub(in crate::node) struct ActiveStream {
    cut: Cut,
    pub(in crate::node) slots: Box<Slots>,
    /// Chunks whose result has been handed down.
    complete: u32,
}

impl GroupStream {
    pub(in crate::node) fn new(grant: StreamConfig, children: usize) -> Self {
        Self {
            tree: grant.tree,
            terms: grant.terms,
            pending: None,
            active: None,
            newest: None,
            requested: Arrivals::new(children),
            done: Arrivals::new(children),
        }
    }

    /// Frames that a port may have queued for streams, beyond those for segments: a stream grant,
    /// and results for as many chunks as there are slots.
    pub(in crate::node) fn outbox_frames(&self) -> u16 {
        slots_for(self.terms.window) + 1
    }

    /// Whether a child has requested to stream this operation's vector.
    pub(in crate::node) fn is_requested(&self, operation: OperationNumber) -> bool {
        self.newest == Some(operation)
            || self
                .pending
                .as_ref()
                .is_some_and(|pending| pending.cut.request().operation == operation)
    }

    /// Whether a child has sent the pending stream request.
    pub(in crate::node) fn has_requested(&self, child: ChildIndex) -> bool {
        self.requested.has(child)
    }

    /// Whether the other children wait for this child's part in a stream.
    pub(in crate::node) fn awaits(&self, child: ChildIndex) -> bool {
        self.pending.is_some() || (self.active.is_some() && !self.done.has(child))
    }

    fn is_running(&self, operation: OperationNumber) -> bool {
        self.active.is_some() && self.newest == Some(operation)
    }

    /// Whether a stream has ended, so that a frame for it is a late copy.
    fn is_over(&self, operation: OperationNumber) -> bool {
        self.newest.is_some_and(|newest| operation == newest || operation.is_before(newest))
            && !self.is_running(operation)
    }

    /// Admits a part if it is a chunk of the stream that runs. Returns `false` for a late copy.
    pub(in crate::node) fn admit(&self, part: &Part) -> Result<bool, FrameError> {
        match &self.active {
            Some(active) if self.is_running(part.operation) => {
                let (operation, chunk) = (part.operation, chunk_of(part));
                if active.cut.has(part) {
                    Ok(true)
                } else {
                    Err(FrameError::NotOfStream { operation, chunk })
                }
            }
            _ if self.is_over(part.operation) => Ok(false),
            _ => Err(FrameError::StreamNotGranted { operation: part.operation }),
        }
    }
}

impl Group {
    pub(in crate::node) fn on_chunk_complete(&mut self) {
        let active = self.stream.as_mut().and_then(|stream| stream.active.as_mut());
        active.expect("chunks complete while the group has the lock").complete += 1;
    }
}

/// Outcome of a stream request or a stream done.
pub(in crate::node) enum Step {
    Waiting,
    Repeat,
    All,
    Failed(Abort),
}

impl Group {
    pub(in crate::node) fn pending(
        &mut self,
        child: ChildIndex,
        request: &StreamRequest,
    ) -> Result<Step, FrameError> {
        let operation = request.operation;
        let stream = self.stream.as_mut().ok_or(FrameError::StreamNotGranted { operation })?;
        if self.children[usize::from(child.0)].has_left {
            return Err(FrameError::WrongPort);
        }
        if stream.is_over(operation) || stream.is_running(operation) {
            return Ok(Step::Repeat);
        }
        // Another child sends this operation's vector in segments.
        let is_segmented = self.slots.iter().any(|slot| slot.is_of(operation));
        match &stream.pending {
            None if is_segmented => {
                let at_fault = self.children[usize::from(child.0)].members.start;
                return Ok(Step::Failed(Abort { reason: AbortReason::Disagreement, at_fault }));
            }
            None => {
                let too_long = FrameError::NotOfStream { operation, chunk: 0 };
                let cut = Cut::new(*request, &stream.terms).ok_or(too_long)?;
                if let Some(gone) = self.children.iter().find(|child| child.has_left) {
                    let at_fault = gone.members.start;
                    return Ok(Step::Failed(Abort { reason: AbortReason::MemberLost, at_fault }));
                }
                stream.pending = Some(PendingStream { cut, stage: PendingStage::Gathering });
                stream.requested.clear();
            }
            Some(pending) if pending.cut.request() != request => {
                let at_fault = self.children[usize::from(child.0)].members.start;
                return Ok(Step::Failed(Abort { reason: AbortReason::Disagreement, at_fault }));
            }
            Some(_) => {}
        }
        if !stream.requested.mark(child) {
            return Ok(Step::Repeat);
        }
        let is_last = stream.requested.count() == self.children.len();
        Ok(if is_last { Step::All } else { Step::Waiting })
    }

    pub(in crate::node) fn set_pending_stage(&mut self, stage: PendingStage) {
        let pending = self.stream.as_mut().and_then(|stream| stream.pending.as_mut());
        pending.expect("the caller has seen the pending stream").stage = stage;
    }

    pub(in crate::node) fn start_stream(&mut self, mut slots: Box<Slots>) {
        let stream = self.stream.as_mut().expect("only groups that may stream wait for locks");
        let PendingStream { cut, .. } =
            stream.pending.take().expect("a group that waits has a pending stream");
        slots.start_over(stream.terms.window, stream.terms.chunk_bytes);
        stream.newest = Some(cut.request().operation);
        stream.done.clear();
        stream.active = Some(ActiveStream { cut, slots, complete: 0 });
    }

    pub(in crate::node) fn mark_done(
        &mut self,
        child: ChildIndex,
        operation: OperationNumber,
    ) -> Result<Step, FrameError> {
        let not_granted = FrameError::StreamNotGranted { operation };
        let stream = self.stream.as_mut().ok_or(not_granted)?;
        if stream.is_over(operation) {
            return Ok(Step::Repeat);
        }
        match &stream.active {
            // A child cannot have a result that was not handed down.
            Some(active) if stream.newest == Some(operation) => {
                if active.complete < active.cut.chunks() {
                    return Err(not_granted);
                }
            }
            _ => return Err(not_granted),
        }
        if !stream.done.mark(child) {
            return Ok(Step::Repeat);
        }
        let is_last = stream.done.count() == self.children.len();
        Ok(if is_last { Step::All } else { Step::Waiting })
    }
}
