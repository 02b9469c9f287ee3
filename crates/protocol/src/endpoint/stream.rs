//! A member's streams, one at a time: requested, granted, streamed, done.

use tributary_wire::OperationNumber;

use super::error::FrameError;
use super::flight::Flight;
use super::operation::Operation;
use crate::StreamTerms;

#[derive(Debug)]
pub(super) struct Streams {
    pub(super) flight: Flight,
    stage: Stage,
    /// A stream with all its results, of which the aggregator has not been told.
    pub(super) done: Option<OperationNumber>,
}

/// How far the oldest stream that isn't complete has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none, or it has not been requested.
    Idle,
    Requested(OperationNumber),
    Granted(OperationNumber),
}

/// The next frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextFrame {
    Request,
    Chunk,
}

impl Streams {
    pub(super) fn new(terms: StreamTerms) -> Self {
        assert!(terms.window > 0 && terms.chunk_bytes > 0, "streams are granted with terms");
        Self { flight: Flight::new(terms.window), stage: Stage::Idle, done: None }
    }

    /// What the oldest stream that isn't complete may send now.
    pub(super) fn next_frame(&self, operation: &Operation) -> Option<NextFrame> {
        match self.stage {
            Stage::Idle => Some(NextFrame::Request),
            Stage::Requested(_) => None,
            Stage::Granted(_) => {
                let may_send =
                    self.flight.has_room() && operation.has_unsent() && operation.is_next_ready();
                may_send.then_some(NextFrame::Chunk)
            }
        }
    }

    pub(super) fn on_requested(&mut self, operation: OperationNumber) {
        self.stage = Stage::Requested(operation);
    }

    pub(super) fn on_granted(&mut self, operation: OperationNumber) -> Result<(), FrameError> {
        if self.stage != Stage::Requested(operation) {
            return Err(FrameError::StreamNotGranted { operation });
        }
        self.stage = Stage::Granted(operation);
        self.flight.start_over();
        Ok(())
    }

    /// Whether this stream has the grant, so that a chunk's result can only be its own.
    pub(super) fn is_running(&self, operation: OperationNumber) -> bool {
        self.stage == Stage::Granted(operation)
    }

    pub(super) fn on_complete(&mut self, operation: OperationNumber) {
        debug_assert!(self.is_running(operation) && self.done.is_none());
        self.stage = Stage::Idle;
        self.done = Some(operation);
    }

    /// Whether a stream was requested and is not granted yet.
    pub(super) fn awaits_grant(&self) -> bool {
        matches!(self.stage, Stage::Requested(_))
    }
}
