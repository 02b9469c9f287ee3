//! Operations whose vectors go as streams: started, made ready, received.

use tributary_wire::OperationNumber;

use super::operation::Operation;
use super::stream::Streams;
use super::{Body, Endpoint, FrameError, OperationSpec, SpecError, StartError, State};

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
        let terms = self.config.stream.ok_or(SpecError::NoStreams)?;
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
        self.streams.as_ref().is_some_and(Streams::awaits_grant)
    }

    pub(super) fn handle_stream_grant(
        &mut self,
        operation: OperationNumber,
    ) -> Result<Option<Body>, FrameError> {
        if self.state == State::Active {
            let streams =
                self.streams.as_mut().ok_or(FrameError::StreamNotGranted { operation })?;
            streams.on_granted(operation)?;
        }
        Ok(None)
    }
}
