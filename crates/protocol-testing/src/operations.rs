//! A member's operations under way, with their bytes.

use std::collections::VecDeque;

use tributary_protocol::endpoint::{Body, Endpoint, StartError, Transmit};
use tributary_wire::{EndpointId, OperationNumber};

use crate::contribution::Contribution;
use crate::workload::OperationPlan;

/// The operations that one member has under way, in the order in which it started them.
#[derive(Debug)]
pub struct Operations {
    member: EndpointId,
    /// Tells the data of groups apart: see [`Contribution`].
    tag: u64,
    running: VecDeque<Running>,
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// The endpoint's number for it.
    pub number: OperationNumber,
    /// Its index in the member's script.
    pub operation: usize,
    /// The operation as the member understands it.
    pub plan: OperationPlan,
    /// Whether its vector goes as a stream.
    pub is_stream: bool,
    /// Bytes of a stream that may be sent by now.
    pub ready_bytes: usize,
    /// Bytes of the result that have come.
    pub got_bytes: usize,
}

impl Running {
    /// The result that the member expects.
    #[must_use]
    pub fn need_bytes(&self, member: EndpointId) -> usize {
        if self.plan.spec(member).receives { self.plan.len_bytes() } else { 0 }
    }
}

impl Operations {
    /// No operations.
    #[must_use]
    pub fn new(member: EndpointId, tag: u64) -> Self {
        Self { member, tag, running: VecDeque::new() }
    }

    /// Starts an operation: as a stream, if `ready_bytes` is given.
    ///
    /// # Errors
    /// As the endpoint.
    pub fn start(
        &mut self,
        endpoint: &mut Endpoint,
        operation: usize,
        plan: OperationPlan,
        ready_bytes: Option<usize>,
    ) -> Result<(), StartError> {
        let spec = plan.spec(self.member);
        let number = match ready_bytes {
            Some(ready_bytes) => endpoint.start_stream(spec, ready_bytes)?,
            None => endpoint.start(spec)?,
        };
        self.running.push_back(Running {
            number,
            operation,
            plan,
            is_stream: ready_bytes.is_some(),
            ready_bytes: ready_bytes.unwrap_or(0),
            got_bytes: 0,
        });
        Ok(())
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Running> {
        self.running.iter()
    }

    /// More of a stream's vector may be sent.
    pub fn make_ready(
        &mut self,
        endpoint: &mut Endpoint,
        number: OperationNumber,
        ready_bytes: usize,
    ) {
        self.find(number).ready_bytes = ready_bytes;
        endpoint.make_ready(number, ready_bytes);
    }

    /// Appends the bytes that follow the header in a frame.
    ///
    /// # Panics
    /// If the endpoint sends a frame of an operation that has ended.
    pub fn append_payload(&self, transmit: &Transmit, bytes: &mut Vec<u8>) {
        let Some(body) = &transmit.body else { return };
        let running = self.running.iter().find(|running| running.number == body.operation);
        let running = running.expect("segments are of running operations");
        let size = running.plan.datatype.size_bytes();
        let (first, end) = (body.bytes.start / size, body.bytes.end / size);
        let (tag, operation, member) = (self.tag, running.operation as u32, self.member.0);
        let contribution = Contribution { tag, operation, member };
        running.plan.append(contribution, first as u64, end as u64, bytes);
    }

    /// Counts a piece of a result, and returns its operation.
    ///
    /// # Panics
    /// If the endpoint takes a result of an operation that has ended.
    pub fn on_result(&mut self, body: &Body) -> usize {
        let running = self.find(body.operation);
        running.got_bytes += body.bytes.len();
        running.operation
    }

    /// Removes an operation that the endpoint reports as complete. None if it is not under way, or
    /// if an older one of its kind is; streams and other operations may pass each other.
    pub fn complete(&mut self, number: OperationNumber) -> Option<Running> {
        let at = self.running.iter().position(|running| running.number == number)?;
        let is_stream = self.running[at].is_stream;
        let is_first = self.running.iter().take(at).all(|older| older.is_stream != is_stream);
        if is_first { self.running.remove(at) } else { None }
    }

    fn find(&mut self, number: OperationNumber) -> &mut Running {
        let running = self.running.iter_mut().find(|running| running.number == number);
        running.expect("results are of running operations")
    }
}
