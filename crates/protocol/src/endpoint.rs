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
mod stream;

use alloc::collections::VecDeque;
use core::ops::Range;

use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Message, Part, Target};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, OperationNumber};

use crate::{Carrier, StreamTerms, Time};

use flight::Flight;
use operation::Operation;
use stream::{Streams, Word};

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
    /// What the group may stream; none if nothing.
    pub stream: Option<StreamTerms>,
}

/// A member of a group. See the module's page.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    state: State,
    /// Started and not complete, oldest first.
    operations: VecDeque<Operation>,
    flight: Flight,
    /// None if the group may not stream.
    streams: Option<Streams>,
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

/// What there is to send; indices are into the operations under way.
#[derive(Clone, Copy, Debug)]
enum Item {
    Join,
    /// A stream is complete.
    Done(OperationNumber),
    /// The last word.
    Word(Message),
    /// A stream is wanted.
    Ask(usize),
    /// A segment, or a chunk.
    Part(usize),
}

/// A frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its header.
    pub header: Header,
    /// The bytes of its payload, if it has one.
    pub body: Option<Body>,
    /// What is to carry it.
    pub carrier: Carrier,
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
    /// A stream's word for an operation that streams nothing now.
    #[error("it is not operation {operation}'s turn to stream")]
    OutOfTurn {
        /// The operation named.
        operation: OperationNumber,
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
        let streams = config.stream.map(Streams::new);
        let operations = VecDeque::with_capacity(config.operations_max);
        let events = VecDeque::with_capacity(config.operations_max + 2);
        Self {
            config,
            state: State::Joining,
            operations,
            flight,
            streams,
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
        self.check_start()?;
        let number = self.next_operation;
        self.enqueue(Operation::new(number, spec, self.config.payload_max_bytes)?);
        Ok(number)
    }

    fn check_start(&self) -> Result<(), StartError> {
        match self.state {
            State::Failed(abort) => return Err(StartError::Failed(abort)),
            State::Left => return Err(StartError::Left),
            State::Joining | State::Active => {}
        }
        if self.operations.len() == self.config.operations_max {
            return Err(StartError::Busy { max: self.config.operations_max });
        }
        Ok(())
    }

    fn enqueue(&mut self, operation: Operation) {
        self.next_operation = operation.number().next();
        self.operations.push_back(operation);
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
        let (message, body) = match self.next_item()? {
            Item::Join => (Message::Join, None),
            Item::Done(operation) => (Message::StreamDone(operation), None),
            Item::Word(word) => (word, None),
            Item::Ask(index) => {
                let ask = self.operations[index].stream_ask();
                (Message::StreamAsk(ask.expect("only streams are asked for")), None)
            }
            Item::Part(index) => {
                let (part, bytes) = self.next_part(index);
                let operation = &self.operations[index];
                let body = Body { operation: operation.number(), bytes };
                let message = match operation.is_stream() {
                    true => Message::Chunk(part),
                    false => Message::Request(part),
                };
                (message, part.has_data.then_some(body))
            }
        };
        Some(Transmit { header: self.header(message), body, carrier: Carrier::Link })
    }

    /// The carrier has taken the frame that [`Endpoint::peek_transmit`] just gave. Nothing else may
    /// be called in between.
    ///
    /// # Panics
    /// If there was no such frame.
    pub fn pop_transmit(&mut self, now: Time) {
        let _ = now;
        match self.next_item().expect("pop follows a peek that found a frame") {
            Item::Join => self.has_said_join = true,
            Item::Done(_) => self.streams_mut().done = None,
            Item::Word(_) => self.last_word = None,
            Item::Ask(index) => {
                let number = self.operations[index].number();
                self.streams_mut().on_asked(number);
            }
            Item::Part(index) => {
                let (part, _) = self.next_part(index);
                self.operations[index].on_sent();
                self.flight_mut(self.operations[index].is_stream()).push(&part);
            }
        }
    }

    /// What is to be sent next. Older operations come first, but a stream that waits for its turn,
    /// or whose window is full, holds up no segments, nor they it.
    fn next_item(&self) -> Option<Item> {
        if !self.has_said_join {
            return Some(Item::Join);
        }
        // Before the last word: a member that left unfinished would fail the group.
        if let Some(operation) = self.streams.as_ref().and_then(|streams| streams.done) {
            return Some(Item::Done(operation));
        }
        if let Some(word) = self.last_word {
            return Some(Item::Word(word));
        }
        if self.state != State::Active {
            return None;
        }
        let operations = || self.operations.iter().enumerate();
        let segment = operations()
            .find(|(_, operation)| !operation.is_stream() && operation.has_unsent())
            .filter(|_| self.flight.has_room())
            .map(|(index, _)| (index, Item::Part(index)));
        let stream = operations()
            .find(|(_, operation)| operation.is_stream() && !operation.is_complete())
            .and_then(|(index, operation)| {
                let word = self.streams.as_ref()?.next_word(operation)?;
                Some((index, if word == Word::Ask { Item::Ask(index) } else { Item::Part(index) }))
            });
        [segment, stream].into_iter().flatten().min_by_key(|(index, _)| *index).map(|it| it.1)
    }

    fn next_part(&self, index: usize) -> (Part, Range<usize>) {
        let operation = &self.operations[index];
        let flight = match &self.streams {
            Some(streams) if operation.is_stream() => &streams.flight,
            _ => &self.flight,
        };
        operation.next_part(flight.next_sequence())
    }

    fn streams_mut(&mut self) -> &mut Streams {
        self.streams.as_mut().expect("only a group with streams has a stream's words to say")
    }

    fn flight_mut(&mut self, is_stream: bool) -> &mut Flight {
        if is_stream { &mut self.streams_mut().flight } else { &mut self.flight }
    }

    /// Takes one frame from the aggregation node. Where its payload, if any, belongs is returned;
    /// the driver copies it there before it polls for events.
    ///
    /// # Errors
    /// If the frame breaks the protocol. If the link carried it, the driver closes the link and
    /// reports that with [`Endpoint::handle_link_closed`]; if it was a datagram, it is dropped.
    pub fn handle_frame(
        &mut self,
        now: Time,
        carrier: Carrier,
        header: &Header,
    ) -> Result<Option<Body>, FrameError> {
        let _ = (now, carrier);
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
            Message::Result(part) => self.handle_result(&part, false),
            Message::ChunkResult(part) => self.handle_chunk_result(&part),
            Message::StreamTurn(operation) => self.handle_stream_turn(operation),
            Message::Abort(abort) => {
                self.fail(abort);
                Ok(None)
            }
            _ => Err(FrameError::WrongDirection),
        }
    }

    fn handle_chunk_result(&mut self, part: &Part) -> Result<Option<Body>, FrameError> {
        if self.state != State::Active {
            return Ok(None);
        }
        let operation = part.operation;
        if self.streams.as_ref().is_some_and(|streams| streams.is_running(operation)) {
            return self.handle_result(part, true);
        }
        let is_under_way = |it: &Operation| it.number() == operation && !it.is_complete();
        if !operation.is_before(self.next_operation) || self.operations.iter().any(is_under_way) {
            return Err(FrameError::OutOfTurn { operation });
        }
        self.repeats += 1;
        Ok(None)
    }

    fn handle_result(&mut self, part: &Part, is_chunk: bool) -> Result<Option<Body>, FrameError> {
        if self.state != State::Active {
            return Ok(None);
        }
        let unexpected = FrameError::Unexpected { sequence: part.sequence.0 };
        let flight = self.flight_mut(is_chunk);
        if flight.is_past(part.sequence) {
            self.repeats += 1;
            return Ok(None);
        }
        if !flight.expects(part) {
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
        let is_complete = operation.is_complete();
        self.flight_mut(is_chunk).complete(part.sequence);
        if is_chunk && is_complete {
            self.streams_mut().on_complete(part.operation);
        }
        if is_complete {
            self.events.push_back(Event::Completed(part.operation));
        }
        // Later ones may be complete before this: their places are kept until it is.
        while self.operations.pop_front_if(|front| front.is_complete()).is_some() {}
        let body = Body { operation: part.operation, bytes };
        Ok((receives && part.has_data).then_some(body))
    }

    /// The link to the aggregation node is gone.
    pub fn handle_link_closed(&mut self) {
        if matches!(self.state, State::Joining | State::Active) {
            let at_fault = self.config.endpoint;
            self.fail(Abort { reason: AbortReason::NodeLost, at_fault });
        }
    }

    /// When [`Endpoint::handle_timeout`] is due; none while nothing is waited for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Does what is due: repeats what may be lost.
    pub fn handle_timeout(&mut self, now: Time) {
        let _ = now;
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

    /// Whether everything that was started has been sent, so that the rest is up to others: nothing
    /// has to be done here until results are wanted.
    #[must_use]
    pub fn is_all_sent(&self) -> bool {
        self.peek_transmit().is_none() && !self.operations.iter().any(Operation::has_unsent)
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
            if let Some(streams) = &mut self.streams {
                streams.done = None;
            }
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
