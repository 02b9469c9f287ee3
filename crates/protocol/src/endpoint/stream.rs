//! A member's side of streams: one at a time, asked for, streamed when its turn comes, and done.

use tributary_wire::OperationNumber;

use super::flight::Flight;
use super::{Body, Endpoint, FrameError, OperationSpec, StartError};
use crate::StreamTerms;

use super::operation::Operation;

#[derive(Debug)]
pub(super) struct Streams {
    pub(super) flight: Flight,
    stage: Stage,
    /// The stream whose results are all here, which the node has not been told.
    pub(super) done: Option<OperationNumber>,
}

/// How far the oldest stream that isn't complete has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none, or it has not been asked for.
    Idle,
    Asked(OperationNumber),
    Turn(OperationNumber),
}

/// What a stream has to say next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Ask,
    Chunk,
}

impl Streams {
    pub(super) fn new(terms: StreamTerms) -> Self {
        assert!(terms.window > 0 && terms.chunk_bytes > 0, "streams are granted with terms");
        Self { flight: Flight::new(terms.window), stage: Stage::Idle, done: None }
    }

    /// What the oldest stream that isn't complete may send now.
    pub(super) fn next_word(&self, operation: &Operation) -> Option<Word> {
        match self.stage {
            Stage::Idle => Some(Word::Ask),
            Stage::Asked(_) => None,
            Stage::Turn(_) => {
                let may_send =
                    self.flight.has_room() && operation.has_unsent() && operation.is_next_ready();
                may_send.then_some(Word::Chunk)
            }
        }
    }

    pub(super) fn on_asked(&mut self, operation: OperationNumber) {
        self.stage = Stage::Asked(operation);
    }

    pub(super) fn on_turn(&mut self, operation: OperationNumber) -> Result<(), FrameError> {
        if self.stage != Stage::Asked(operation) {
            return Err(FrameError::OutOfTurn { operation });
        }
        self.stage = Stage::Turn(operation);
        self.flight.start_over();
        Ok(())
    }

    /// Whether a chunk's result can only be of the stream that runs.
    pub(super) fn is_running(&self, operation: OperationNumber) -> bool {
        self.stage == Stage::Turn(operation)
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

    /// The first `ready_bytes` of a stream's vector may be sent: no fewer than before. Does nothing
    /// if the operation is over.
    pub fn make_ready(&mut self, number: OperationNumber, ready_bytes: usize) {
        if let Some(operation) = self.operations.iter_mut().find(|it| it.number() == number) {
            operation.set_ready(ready_bytes);
        }
    }

    /// How many bytes of a stream's result are in their place, from the first on without a gap.
    /// None if the operation isn't under way.
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

    /// Whether a stream waits for its turn: asked for, and not granted yet.
    #[must_use]
    pub fn awaits_turn(&self) -> bool {
        self.streams.as_ref().is_some_and(|streams| matches!(streams.stage, Stage::Asked(_)))
    }

    pub(super) fn handle_stream_turn(
        &mut self,
        operation: OperationNumber,
    ) -> Result<Option<Body>, FrameError> {
        if self.state == super::State::Active {
            let streams = self.streams.as_mut().ok_or(FrameError::OutOfTurn { operation })?;
            streams.on_turn(operation)?;
        }
        Ok(None)
    }
}
