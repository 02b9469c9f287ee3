//! A member's streams, one at a time: requested, granted, streamed, done.

use tributary_wire::OperationNumber;

use super::flight::Flight;
use super::{Body, Endpoint, FrameError, OperationSpec, StartError};
use crate::StreamTerms;

use super::operation::Operation;

#[derive(Debug)]
pub(super) struct Streams {
    pub(super) flight: Flight,
    stage: Stage,
    /// A stream with all its results, of which the node has not been told.
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
}

impl Endpoint {
    /// Starts an operation whose vector goes as a stream, and of which `ready_bytes` may be sent;
    /// [`Endpoint::make_ready`] says when there are more. Every member starts the same operations
    /// in the same order, and the same ones as streams.
    ///
    /// # Errors
    /// If it is no operation or no stream, too many are under way, or the group is gone.
    pub fn start_stream(
        &mut self,
        spec: OperationSpec,
        ready_bytes: usize,
    ) -> Result<OperationNumber, StartError> {
        self.check_start()?;
        let terms = self.config.stream.ok_or(super::SpecError::NoStreams)?;
        let number = self.next_operation;
        self.enqueue(Operation::new_stream(number, spec, &terms, ready_bytes)?);
        Ok(number)
    }

    /// Lets the first `ready_bytes` of a stream's vector be sent. They never become fewer. Does
    /// nothing if the operation has ended.
    pub fn make_ready(&mut self, number: OperationNumber, ready_bytes: usize) {
        if let Some(operation) = self.operations.iter_mut().find(|it| it.number() == number) {
            operation.set_ready(ready_bytes);
        }
    }

    /// How many bytes of a stream's result are in place, counted from the first without a gap. None
    /// if the operation is not under way.
    #[must_use]
    pub fn received_bytes(&self, number: OperationNumber) -> Option<usize> {
        let operation = self.operations.iter().find(|it| it.number() == number)?;
        let streams = self.streams.as_ref()?;
        if operation.is_complete() {
            return Some(operation.len_bytes());
        }
        let complete =
            if streams.is_running(number) { streams.flight.complete_in_order() } else { 0 };
        Some(operation.bytes_before(complete))
    }

    /// Whether a stream was requested and is not granted yet.
    #[must_use]
    pub fn awaits_stream_grant(&self) -> bool {
        self.streams.as_ref().is_some_and(|streams| matches!(streams.stage, Stage::Requested(_)))
    }

    pub(super) fn handle_stream_grant(
        &mut self,
        operation: OperationNumber,
    ) -> Result<Option<Body>, FrameError> {
        if self.state == super::State::Active {
            let streams =
                self.streams.as_mut().ok_or(FrameError::StreamNotGranted { operation })?;
            streams.on_granted(operation)?;
        }
        Ok(None)
    }
}
