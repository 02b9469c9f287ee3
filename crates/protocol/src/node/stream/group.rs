//! A group's part in streaming at one node: what it wants, what it holds, who of its children has
//! said what.

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, AbortReason, Part, StreamAsk};
use tributary_wire::{ChildIndex, OperationNumber, TreeId};

use super::super::FrameError;
use super::super::arrivals::Arrivals;
use super::super::config::StreamGrant;
use super::super::group::Group;
use super::super::slots::{Slots, slots_for};
use crate::StreamTerms;
use crate::stream::{Cut, chunk_of};

/// A group's part in streaming.
#[derive(Debug)]
pub(in crate::node) struct GroupStream {
    pub(in crate::node) tree: TreeId,
    terms: StreamTerms,
    pub(in crate::node) wish: Option<Wish>,
    /// There while it is the group's turn.
    pub(in crate::node) held: Option<Held>,
    /// The operation that streamed last, or streams now.
    pub(in crate::node) newest: Option<OperationNumber>,
    /// Children that have asked for the wish.
    asked: Arrivals,
    /// Children that are done with what is held.
    done: Arrivals,
}

/// A stream that is wanted.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Wish {
    pub(in crate::node) cut: Cut,
    pub(in crate::node) stage: WishStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum WishStage {
    /// Not all children have asked.
    Gathering,
    /// The parent has been asked.
    Forwarded,
    /// It waits for this node's lock.
    Queued,
}

/// The stream that runs.
#[derive(Debug)]
pub(in crate::node) struct Held {
    cut: Cut,
    pub(in crate::node) slots: Box<Slots>,
    /// Chunks whose result has been handed down.
    complete: u32,
}

impl GroupStream {
    pub(in crate::node) fn new(grant: StreamGrant, children: usize) -> Self {
        Self {
            tree: grant.tree,
            terms: grant.terms,
            wish: None,
            held: None,
            newest: None,
            asked: Arrivals::new(children),
            done: Arrivals::new(children),
        }
    }

    /// Frames that a port may have queued for streams beyond those for segments: results, and a
    /// turn, for as many chunks as there are slots.
    pub(in crate::node) fn outbox_frames(&self) -> u16 {
        slots_for(self.terms.window) + 1
    }

    /// Whether somebody has asked to stream this operation's vector.
    pub(in crate::node) fn is_asked(&self, operation: OperationNumber) -> bool {
        self.newest == Some(operation)
            || self.wish.as_ref().is_some_and(|wish| wish.cut.ask().operation == operation)
    }

    /// Whether the others wait for this child's part in a stream.
    pub(in crate::node) fn awaits(&self, child: ChildIndex) -> bool {
        self.wish.is_some() || (self.held.is_some() && !self.done.has(child))
    }

    fn is_running(&self, operation: OperationNumber) -> bool {
        self.held.is_some() && self.newest == Some(operation)
    }

    /// Whether a stream is over, so that what still comes for it is a late copy.
    fn is_over(&self, operation: OperationNumber) -> bool {
        self.newest.is_some_and(|newest| operation == newest || operation.is_before(newest))
            && !self.is_running(operation)
    }

    /// Lets a part through if it is a chunk of the stream that runs; `false` if it is a late copy.
    pub(in crate::node) fn admit(&self, part: &Part) -> Result<bool, FrameError> {
        match &self.held {
            Some(held) if self.is_running(part.operation) => {
                let (operation, chunk) = (part.operation, chunk_of(part));
                if held.cut.has(part) {
                    Ok(true)
                } else {
                    Err(FrameError::NotOfStream { operation, chunk })
                }
            }
            _ if self.is_over(part.operation) => Ok(false),
            _ => Err(FrameError::OutOfTurn { operation: part.operation }),
        }
    }
}

impl Group {
    pub(in crate::node) fn on_chunk_complete(&mut self) {
        let held = self.stream.as_mut().and_then(|stream| stream.held.as_mut());
        held.expect("chunks complete while the lock is held").complete += 1;
    }
}

/// What a wish, or a child's being done, leads to.
pub(in crate::node) enum Step {
    Waiting,
    Repeat,
    All,
    Failed(Abort),
}

impl Group {
    pub(in crate::node) fn wish(
        &mut self,
        child: ChildIndex,
        ask: &StreamAsk,
    ) -> Result<Step, FrameError> {
        let operation = ask.operation;
        let stream = self.stream.as_mut().ok_or(FrameError::OutOfTurn { operation })?;
        if self.children[usize::from(child.0)].has_left {
            return Err(FrameError::WrongPort);
        }
        if stream.is_over(operation) || stream.is_running(operation) {
            return Ok(Step::Repeat);
        }
        // Somebody else sends this operation's vector in segments.
        let is_segmented = self.slots.iter().any(|slot| slot.is_of(operation));
        match &stream.wish {
            None if is_segmented => {
                let at_fault = self.children[usize::from(child.0)].members.start;
                return Ok(Step::Failed(Abort { reason: AbortReason::Disagreement, at_fault }));
            }
            None => {
                let too_long = FrameError::NotOfStream { operation, chunk: 0 };
                let cut = Cut::new(*ask, &stream.terms).ok_or(too_long)?;
                if let Some(gone) = self.children.iter().find(|child| child.has_left) {
                    let at_fault = gone.members.start;
                    return Ok(Step::Failed(Abort { reason: AbortReason::MemberLost, at_fault }));
                }
                stream.wish = Some(Wish { cut, stage: WishStage::Gathering });
                stream.asked.clear();
            }
            Some(wish) if wish.cut.ask() != ask => {
                let at_fault = self.children[usize::from(child.0)].members.start;
                return Ok(Step::Failed(Abort { reason: AbortReason::Disagreement, at_fault }));
            }
            Some(_) => {}
        }
        if !stream.asked.mark(child) {
            return Ok(Step::Repeat);
        }
        let is_last = stream.asked.count() == self.children.len();
        Ok(if is_last { Step::All } else { Step::Waiting })
    }

    pub(in crate::node) fn set_wish_stage(&mut self, stage: WishStage) {
        let wish = self.stream.as_mut().and_then(|stream| stream.wish.as_mut());
        wish.expect("the caller has seen the wish").stage = stage;
    }

    pub(in crate::node) fn take_turn(&mut self, mut slots: Box<Slots>) {
        let stream = self.stream.as_mut().expect("only groups that may stream wait for locks");
        let Wish { cut, .. } = stream.wish.take().expect("a group waits with a wish");
        slots.start_over(stream.terms.window, stream.terms.chunk_bytes);
        stream.newest = Some(cut.ask().operation);
        stream.done.clear();
        stream.held = Some(Held { cut, slots, complete: 0 });
    }

    pub(in crate::node) fn mark_done(
        &mut self,
        child: ChildIndex,
        operation: OperationNumber,
    ) -> Result<Step, FrameError> {
        let out_of_turn = FrameError::OutOfTurn { operation };
        let stream = self.stream.as_mut().ok_or(out_of_turn)?;
        if stream.is_over(operation) {
            return Ok(Step::Repeat);
        }
        match &stream.held {
            // Nobody has a result that was not handed down.
            Some(held) if stream.newest == Some(operation) => {
                if held.complete < held.cut.chunks() {
                    return Err(out_of_turn);
                }
            }
            _ => return Err(out_of_turn),
        }
        if !stream.done.mark(child) {
            return Ok(Step::Repeat);
        }
        let is_last = stream.done.count() == self.children.len();
        Ok(if is_last { Step::All } else { Step::Waiting })
    }
}
