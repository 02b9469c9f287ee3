//! A member of a group: cuts vectors into segments, keeps as many in flight as the group was
//! granted, and says where results belong.
//!
//! Payload stays in the application's buffers. [`Endpoint::peek_transmit`] names the part of the
//! vector a frame carries; [`Endpoint::handle_frame`] names the part a result fills. Segments use
//! consecutive sequence numbers across operations, so all members agree on them without talking;
//! a segment is sent only while fewer than `osos` sequence numbers separate it from the oldest
//! incomplete one. Aggregation nodes rely on that (see [`crate::node`]).

mod flight;
mod operation;

use alloc::collections::VecDeque;
use core::ops::Range;

use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Message, Part, Target};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, OperationNumber};

use flight::Flight;
use operation::Operation;

pub use operation::{OperationSpec, SpecError};

/// A member's grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// This member's place at its aggregation node.
    pub child: ChildIndex,
    /// What it has to show there.
    pub capability: Capability,
    /// Its number in the group.
    pub endpoint: EndpointId,
    /// Segments in flight at most.
    pub osos: u16,
    /// Longest segment.
    pub payload_max_bytes: u32,
    /// Operations that may be started and not complete.
    pub operations_max: usize,
}

/// A member of a group. See the module's page.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    state: State,
    /// Started and not complete, oldest first.
    operations: VecDeque<Operation>,
    flight: Flight,
    next_operation: OperationNumber,
    /// Complete or failed, not yet polled.
    events: VecDeque<Event>,
    has_said_join: bool,
    last_word: Option<Message>,
    repeats: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Joining,
    Active,
    /// Left in good order.
    Left,
    Failed(Abort),
}

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its header.
    pub header: Header,
    /// The bytes of its payload, if it has one.
    pub body: Option<Body>,
}

/// A part of an operation's vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The operation.
    pub operation: OperationNumber,
    /// Bytes of its vector.
    pub bytes: Range<usize>,
}

/// Something the driver has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The aggregation node has taken this member in.
    Joined,
    /// The operation is complete; its results are where they were to go.
    Completed(OperationNumber),
    /// The group failed; nothing that was started and has not completed will.
    Failed(Abort),
}

/// Why an operation was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The caller's operation is none.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// As many operations as allowed are under way; finish one first.
    #[error("{max} operations are already under way")]
    Busy {
        /// The limit.
        max: usize,
    },
    /// The group has failed.
    #[error("the group has failed: {}", .0.reason)]
    Failed(Abort),
    /// The member has left the group.
    #[error("this member has left the group")]
    Left,
}

/// Why a frame was refused. The aggregation node is at fault; its link is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame for another group, epoch or child, or with another capability.
    #[error("frame for an edge that this member does not hold")]
    WrongEdge,
    /// A message that only travels upward.
    #[error("this message only travels upward")]
    WrongDirection,
    /// A result for a segment that is not in flight, or not described as it was asked.
    #[error("result for sequence {sequence} does not match what was asked")]
    Unexpected {
        /// The sequence number sent.
        sequence: u32,
    },
    /// A result that should bring data and doesn't.
    #[error("result for sequence {sequence} lacks its data")]
    MissingData {
        /// The sequence number sent.
        sequence: u32,
    },
}

impl Endpoint {
    /// A member that is about to join. All memory it will use is allocated here.
    ///
    /// # Panics
    /// If the grant has no outstanding operation or no payload: the manager grants neither.
    #[must_use]
    pub fn new(config: EndpointConfig) -> Self {
        assert!(config.osos > 0, "a grant has an outstanding operation");
        assert!(config.payload_max_bytes > 0, "a grant has a payload");
        let flight = Flight::new(config.osos);
        let operations = VecDeque::with_capacity(config.operations_max);
        let events = VecDeque::with_capacity(config.operations_max + 2);
        Self {
            config,
            state: State::Joining,
            operations,
            flight,
            next_operation: OperationNumber::FIRST,
            events,
            has_said_join: false,
            last_word: None,
            repeats: 0,
        }
    }

    /// Starts an operation. Every member starts the same ones in the same order.
    ///
    /// # Errors
    /// If it is no operation, too many are under way, or the group is gone.
    pub fn start(&mut self, spec: OperationSpec) -> Result<OperationNumber, StartError> {
        match self.state {
            State::Failed(abort) => return Err(StartError::Failed(abort)),
            State::Left => return Err(StartError::Left),
            State::Joining | State::Active => {}
        }
        if self.operations.len() == self.config.operations_max {
            return Err(StartError::Busy { max: self.config.operations_max });
        }
        let number = self.next_operation;
        let operation = Operation::new(number, spec, self.config.payload_max_bytes)?;
        self.operations.push_back(operation);
        self.next_operation = number.next();
        Ok(number)
    }

    /// Leaves the group: the last thing a member does. Operations under way are given up.
    pub fn leave(&mut self) {
        if matches!(self.state, State::Joining | State::Active) {
            self.state = State::Left;
            self.operations.clear();
            self.last_word = Some(Message::Leave);
        }
    }

    /// Fails the group from this side, for instance because a process of this host was lost.
    pub fn abort(&mut self, reason: AbortReason) {
        if matches!(self.state, State::Joining | State::Active) {
            let abort = Abort { reason, at_fault: self.config.endpoint };
            self.fail(abort);
            self.last_word = Some(Message::Abort(abort));
        }
    }

    /// The next frame to send, if any. It stays until [`Endpoint::pop_transmit`].
    #[must_use]
    pub fn peek_transmit(&self) -> Option<Transmit> {
        if !self.has_said_join {
            return Some(Transmit { header: self.header(Message::Join), body: None });
        }
        if let Some(word) = self.last_word {
            return Some(Transmit { header: self.header(word), body: None });
        }
        if self.state != State::Active || !self.flight.has_room() {
            return None;
        }
        let operation = self.operations.iter().find(|operation| operation.has_unsent())?;
        let (part, bytes) = operation.next_part(self.flight.next_sequence());
        let header = self.header(Message::Request(part));
        let number = operation.number();
        Some(Transmit { header, body: part.has_data.then_some(Body { operation: number, bytes }) })
    }

    /// The link has taken the frame that [`Endpoint::peek_transmit`] just gave. Nothing else may be
    /// called in between.
    ///
    /// # Panics
    /// If there was no such frame.
    pub fn pop_transmit(&mut self) {
        if !self.has_said_join {
            self.has_said_join = true;
        } else if self.last_word.take().is_none() {
            let operation = self
                .operations
                .iter_mut()
                .find(|operation| operation.has_unsent())
                .expect("pop follows a peek that found a segment");
            let (part, _) = operation.next_part(self.flight.next_sequence());
            operation.on_sent();
            self.flight.push(&part);
        }
    }

    /// Takes one frame from the aggregation node. Where its payload, if any, belongs is returned;
    /// the driver copies it there before it polls for events.
    ///
    /// # Errors
    /// If the frame breaks the protocol. The driver closes the link and reports that with
    /// [`Endpoint::handle_link_refused`].
    pub fn handle_frame(&mut self, header: &Header) -> Result<Option<Body>, FrameError> {
        if header.edge != self.edge() {
            return Err(FrameError::WrongEdge);
        }
        match header.message {
            Message::Joined => {
                if self.state == State::Joining {
                    self.state = State::Active;
                    self.events.push_back(Event::Joined);
                }
                Ok(None)
            }
            Message::Result(part) => self.handle_result(&part),
            Message::Abort(abort) => {
                self.fail(abort);
                Ok(None)
            }
            Message::Join | Message::Request(_) | Message::Leave => Err(FrameError::WrongDirection),
        }
    }

    fn handle_result(&mut self, part: &Part) -> Result<Option<Body>, FrameError> {
        if self.state != State::Active {
            return Ok(None);
        }
        let unexpected = FrameError::Unexpected { sequence: part.sequence.0 };
        if self.flight.is_past(part.sequence) {
            self.repeats += 1;
            return Ok(None);
        }
        if !self.flight.expects(part) {
            return Err(unexpected);
        }
        let oldest = self.operations.front().ok_or(unexpected)?.number();
        let index = part.operation.0.wrapping_sub(oldest.0) as usize;
        let operation = self.operations.get_mut(index).ok_or(unexpected)?;
        let receives = operation.receives();
        if receives && !part.has_data && part.shape.elements() > 0 {
            return Err(FrameError::MissingData { sequence: part.sequence.0 });
        }
        let bytes = operation.bytes_of(part.segment);
        operation.on_result();
        self.flight.complete(part.sequence);
        while let Some(front) = self.operations.pop_front_if(|front| front.is_complete()) {
            self.events.push_back(Event::Completed(front.number()));
        }
        let body = Body { operation: part.operation, bytes };
        Ok((receives && part.has_data).then_some(body))
    }

    /// The link to the aggregation node is gone.
    pub fn handle_link_closed(&mut self) {
        self.fail(Abort { reason: AbortReason::NodeLost, at_fault: self.config.endpoint });
    }

    /// The link to the aggregation node was closed on this side, because what came over it was no
    /// frame or was refused.
    pub fn handle_link_refused(&mut self) {
        self.fail(Abort { reason: AbortReason::Misbehaved, at_fault: self.config.endpoint });
    }

    /// The next thing the driver has to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the member has nothing more to send, so that a link may be closed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.peek_transmit().is_none()
    }

    /// Results that came twice, and were dropped.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    fn fail(&mut self, abort: Abort) {
        if matches!(self.state, State::Joining | State::Active) {
            self.state = State::Failed(abort);
            self.operations.clear();
            self.events.push_back(Event::Failed(abort));
        }
    }

    fn edge(&self) -> Edge {
        let config = &self.config;
        Edge {
            group: config.group,
            epoch: config.epoch,
            child: config.child,
            capability: config.capability,
        }
    }

    fn header(&self, message: Message) -> Header {
        Header { edge: self.edge(), message }
    }
}
