//! A group's streaming state at one aggregator: the stream it requests, the stream that runs, and which
//! children have sent what.

use alloc::boxed::Box;

use tributary_wire::frame::{Part, StreamRequest};
use tributary_wire::{ChildIndex, OperationNumber, TreeId};

use super::arrivals::Arrivals;
use super::slots::{Slots, slots_for};
use crate::StreamTerms;
use crate::node::FrameError;
use crate::node::config::StreamConfig;
use crate::stream::{Cut, chunk_of};

/// A group's streaming state at one aggregator.
#[derive(Debug)]
pub(super) struct GroupStream {
    pub(super) tree: TreeId,
    terms: StreamTerms,
    pending: Option<PendingStream>,
    /// Present while the group has the stream lock.
    active: Option<ActiveStream>,
    /// The operation that streams now or streamed last.
    newest: Option<OperationNumber>,
    /// Children that have sent the pending stream request.
    requested: Arrivals,
    /// Children that are done with the active stream.
    done: Arrivals,
}

/// A stream that was requested and not granted.
#[derive(Clone, Copy, Debug)]
struct PendingStream {
    cut: Cut,
    stage: PendingStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingStage {
    /// Not all children have sent the request.
    Gathering,
    /// The request was sent to the parent.
    Forwarded,
    /// The group waits for this aggregator's lock.
    Queued,
}

/// The stream that runs.
#[derive(Debug)]
struct ActiveStream {
    cut: Cut,
    slots: Box<Slots>,
    /// Chunks whose result has been handed down.
    complete: u32,
}

impl GroupStream {
    pub(super) fn new(grant: StreamConfig, children: usize) -> Self {
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
    pub(super) fn outbox_frames(&self) -> u16 {
        slots_for(self.terms.window) + 1
    }

    /// Whether a child has requested to stream this operation's vector.
    pub(super) fn is_requested(&self, operation: OperationNumber) -> bool {
        self.newest == Some(operation)
            || self
                .pending
                .as_ref()
                .is_some_and(|pending| pending.cut.request().operation == operation)
    }

    /// Whether a child has sent the pending stream request.
    pub(super) fn has_requested(&self, child: ChildIndex) -> bool {
        self.requested.has(child)
    }

    /// Whether the other children wait for this child's part in a stream.
    pub(super) fn awaits(&self, child: ChildIndex) -> bool {
        self.pending.is_some() || (self.active.is_some() && !self.done.has(child))
    }

    /// Whether this operation's stream runs.
    pub(super) fn is_running(&self, operation: OperationNumber) -> bool {
        self.active.is_some() && self.newest == Some(operation)
    }

    /// Whether a stream has ended, so that a frame for it is a late copy.
    pub(super) fn is_over(&self, operation: OperationNumber) -> bool {
        self.newest.is_some_and(|newest| operation == newest || operation.is_before(newest))
            && !self.is_running(operation)
    }

    /// Admits a part if it is a chunk of the stream that runs. Returns `false` for a late copy.
    pub(super) fn admit(&self, part: &Part) -> Result<bool, FrameError> {
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

    /// The slots of its chunks, while the group has the stream lock.
    pub(super) fn slots(&self) -> Option<&Slots> {
        Some(&self.active.as_ref()?.slots)
    }

    /// The slots of its chunks, while the group has the stream lock.
    pub(super) fn slots_mut(&mut self) -> Option<&mut Slots> {
        Some(&mut self.active.as_mut()?.slots)
    }

    /// What is requested and not granted, and how far the request has come.
    pub(super) fn pending(&self) -> Option<(&StreamRequest, PendingStage)> {
        self.pending.as_ref().map(|pending| (pending.cut.request(), pending.stage))
    }

    /// Takes the first child's request.
    pub(super) fn begin_request(&mut self, request: &StreamRequest) -> Result<(), FrameError> {
        let too_long = FrameError::NotOfStream { operation: request.operation, chunk: 0 };
        let cut = Cut::new(*request, &self.terms).ok_or(too_long)?;
        self.pending = Some(PendingStream { cut, stage: PendingStage::Gathering });
        self.requested.clear();
        Ok(())
    }

    /// Notes that a child has sent the pending request.
    pub(super) fn mark_requested(&mut self, child: ChildIndex, children: usize) -> Progress {
        Progress::of(&mut self.requested, child, children)
    }

    pub(super) fn set_pending_stage(&mut self, stage: PendingStage) {
        let pending = self.pending.as_mut();
        pending.expect("the caller has seen the pending stream").stage = stage;
    }

    /// Starts the pending stream in the tree's slots.
    pub(super) fn start(&mut self, mut slots: Box<Slots>) {
        let PendingStream { cut, .. } =
            self.pending.take().expect("a group that waits has a pending stream");
        slots.start_over(self.terms.window, self.terms.chunk_bytes);
        self.newest = Some(cut.request().operation);
        self.done.clear();
        self.active = Some(ActiveStream { cut, slots, complete: 0 });
    }

    /// The operation that streams.
    ///
    /// # Panics
    /// If the group does not have the stream lock.
    pub(super) fn operation(&self) -> OperationNumber {
        let newest = self.active.as_ref().and(self.newest);
        newest.expect("the group has the lock")
    }

    /// A chunk's result is handed down.
    pub(super) fn on_chunk_complete(&mut self) {
        let active = self.active.as_mut();
        active.expect("chunks complete while the group has the lock").complete += 1;
    }

    /// Notes that a child has all results of an operation.
    pub(super) fn mark_done(
        &mut self,
        child: ChildIndex,
        operation: OperationNumber,
        children: usize,
    ) -> Result<Progress, FrameError> {
        if self.is_over(operation) {
            return Ok(Progress::Repeat);
        }
        match &self.active {
            // A child cannot have a result that was not handed down.
            Some(active)
                if self.newest == Some(operation) && active.complete >= active.cut.chunks() =>
            {
                Ok(Progress::of(&mut self.done, child, children))
            }
            _ => Err(FrameError::StreamNotGranted { operation }),
        }
    }

    /// Ends the stream that runs, if one does, and gives its slots back.
    pub(super) fn stop(&mut self) -> Option<Box<Slots>> {
        Some(self.active.take()?.slots)
    }
}

/// How far the children are with a stream request or a stream done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Others have not sent it.
    Waiting,
    /// This child had sent it before.
    Repeat,
    /// All have sent it.
    All,
}

impl Progress {
    fn of(arrived: &mut Arrivals, child: ChildIndex, children: usize) -> Self {
        match arrived.mark(child) {
            false => Self::Repeat,
            true if arrived.count() == children => Self::All,
            true => Self::Waiting,
        }
    }
}
