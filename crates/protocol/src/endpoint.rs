//! A member of a group: cuts vectors into segments, keeps as many in flight as the group was
//! granted, and says where results belong.
//!
//! Payload stays in the application's buffers. [`Endpoint::peek_transmit`] names the part of the
//! vector a frame carries; [`Endpoint::handle_frame`] names the part a result fills. Segments use
//! consecutive sequence numbers across operations, so all members agree on them without talking;
//! a segment is sent only while fewer than `osos` sequence numbers separate it from the oldest
//! incomplete one. Aggregation nodes rely on that (see [`crate::node`]).
//!
//! If the driver can carry datagrams, it says so ([`Endpoint::offer_datagrams`]); requests then
//! travel by them once the aggregation node has been heard that way, and are repeated until they
//! are answered (see [`crate::Reach`]).

mod flight;
mod operation;

use alloc::collections::VecDeque;
use core::num::NonZeroU16;
use core::ops::Range;

use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Hearing, Message, Part, Target};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, OperationNumber};

use crate::multicast::Ear;
use crate::recovery::{LowerEnd, Repeat};
use crate::{Carrier, Reach, RecoveryStats, Time};

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

/// Events beside completions that may wait to be polled: joined, failed, and what becomes of
/// datagrams.
const EVENTS_SPARE: usize = 6;

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
    /// What the link is to carry next: one word at a time.
    offer: Option<NonZeroU16>,
    last_word: Option<Message>,
    ear: Option<Ear>,
    /// Whether multicast is heard, to be told to the node.
    hears: Option<Hearing>,
    recovery: LowerEnd,
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
    /// The aggregation node takes datagrams at this UDP port of the address that the link leads
    /// to. The driver delivers what comes from there from now on.
    DatagramPeer(NonZeroU16),
    /// Whether results sent to the group's multicast address arrive: told when the first does, and
    /// when they cease to.
    Multicast(Reach),
    /// Whether datagrams arrive: decided once after they were offered, and again if they cease to.
    Datagrams(Reach),
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
    /// A message that travels by datagram came over the link, or the other way round.
    #[error("this message is not carried that way")]
    WrongCarrier,
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
        let recovery = LowerEnd::new(usize::from(config.osos));
        let operations = VecDeque::with_capacity(config.operations_max);
        let events = VecDeque::with_capacity(config.operations_max + EVENTS_SPARE);
        Self {
            config,
            state: State::Joining,
            operations,
            flight,
            next_operation: OperationNumber::FIRST,
            events,
            has_said_join: false,
            offer: None,
            last_word: None,
            ear: None,
            hears: None,
            recovery,
            repeats: 0,
        }
    }

    /// Offers the aggregation node to exchange datagrams, which this side takes at the UDP port
    /// `port` of the address that the link starts from, for segments up to `segment_max_bytes`;
    /// longer ones go over the link. Once, before the first frame is sent.
    pub fn offer_datagrams(&mut self, port: NonZeroU16, segment_max_bytes: u32) {
        debug_assert!(!self.has_said_join, "offered after the join was sent");
        self.offer = Some(port);
        self.recovery.on_offering(segment_max_bytes);
    }

    /// Takes results that come to the group's multicast address and show `capability`.
    pub fn hear_multicast(&mut self, capability: Capability) {
        self.ear = Some(Ear::new(capability));
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
            self.recovery.clear();
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
        if let Some(word) = self.next_word() {
            return Some(self.bare(word, Carrier::Link));
        }
        if self.state != State::Active {
            return None;
        }
        if let Some(probe) = self.recovery.probe() {
            return Some(self.bare(probe, Carrier::Datagram));
        }
        if let Some(repeat) = self.recovery.next_repeat() {
            return Some(self.repeat(repeat));
        }
        if !self.flight.has_room() {
            return None;
        }
        let operation = self.operations.iter().find(|operation| operation.has_unsent())?;
        let (part, bytes) = operation.next_part(self.flight.next_sequence());
        let header = self.header(Message::Request(part));
        let number = operation.number();
        let body = part.has_data.then_some(Body { operation: number, bytes });
        Some(Transmit { header, body, carrier: self.recovery.carrier(part.shape.bytes()) })
    }

    /// What the link is to carry before anything else.
    fn next_word(&self) -> Option<Message> {
        if !self.has_said_join {
            return Some(Message::Join);
        }
        let offer = self.offer.map(|port| Message::Datagrams(Some(port)));
        offer.or(self.hears.map(Message::Hears)).or(self.last_word)
    }

    fn repeat(&self, repeat: Repeat) -> Transmit {
        let mut part = *self.flight.asked(repeat.sequence).expect("what is repeated is in flight");
        part.trail.attempt = repeat.attempt;
        let operation = &self.operations[self.index_of(part.operation)];
        let bytes = operation.bytes_of(part.segment);
        let body = part.has_data.then_some(Body { operation: part.operation, bytes });
        Transmit { header: self.header(Message::Request(part)), body, carrier: repeat.carrier }
    }

    /// Where an operation stands among those under way, if it is one of them.
    fn index_of(&self, number: OperationNumber) -> usize {
        let oldest = self.operations.front().map_or(number, Operation::number);
        number.0.wrapping_sub(oldest.0) as usize
    }

    /// The carrier has taken the frame that [`Endpoint::peek_transmit`] just gave. Nothing else may
    /// be called in between.
    ///
    /// # Panics
    /// If there was no such frame.
    pub fn pop_transmit(&mut self, now: Time) {
        if !self.has_said_join {
            self.has_said_join = true;
        } else if self.offer.take().is_some()
            || self.hears.take().is_some()
            || self.last_word.take().is_some()
        {
        } else if self.recovery.probe().is_some() {
            self.recovery.on_probe_sent(now);
        } else if let Some(repeat) = self.recovery.next_repeat() {
            self.recovery.on_repeated(now, repeat);
        } else {
            let operation = self
                .operations
                .iter_mut()
                .find(|operation| operation.has_unsent())
                .expect("pop follows a peek that found a segment");
            let (part, _) = operation.next_part(self.flight.next_sequence());
            operation.on_sent();
            self.flight.push(&part);
            if self.recovery.carrier(part.shape.bytes()) == Carrier::Datagram {
                self.recovery.on_sent(now, part.sequence);
            }
        }
    }

    /// Takes one frame from the aggregation node. Where its payload, if any, belongs is returned;
    /// the driver copies it there before it polls for events.
    ///
    /// # Errors
    /// If the frame breaks the protocol. If the link carried it, the driver closes the link and
    /// reports that with [`Endpoint::handle_link_refused`]; if it was a datagram, it is dropped.
    pub fn handle_frame(
        &mut self,
        now: Time,
        carrier: Carrier,
        header: &Header,
    ) -> Result<Option<Body>, FrameError> {
        if carrier == Carrier::Multicast {
            return self.handle_multicast(now, header);
        }
        if header.edge != self.edge() {
            return Err(FrameError::WrongEdge);
        }
        if carrier == Carrier::Datagram {
            self.recovery.on_heard(now);
        }
        match (header.message, carrier) {
            (Message::Result(part), _) => return self.handle_result(now, carrier, &part),
            (Message::Joined, Carrier::Link) => {
                if self.state == State::Joining {
                    self.state = State::Active;
                    self.events.push_back(Event::Joined);
                }
            }
            (Message::Abort(abort), Carrier::Link) => self.fail(abort),
            (Message::Datagrams(_), Carrier::Link) if !self.recovery.is_offered() => {}
            (Message::Datagrams(port), Carrier::Link) => {
                let decided = self.recovery.on_answer(now, port);
                self.events.extend(port.map(Event::DatagramPeer));
                self.decide(decided);
            }
            (Message::Probed(attempt), Carrier::Datagram) => {
                let decided = self.recovery.on_probed(now, attempt);
                self.decide(decided);
            }
            (Message::Held { sequence, attempt }, Carrier::Datagram) => {
                self.recovery.on_held(now, sequence, attempt);
            }
            (Message::Missing { sequence }, Carrier::Datagram) => {
                self.recovery.on_missing(sequence);
            }
            (
                Message::Join
                | Message::Request(_)
                | Message::Leave
                | Message::Probe(_)
                | Message::Hears(_),
                _,
            ) => return Err(FrameError::WrongDirection),
            _ => return Err(FrameError::WrongCarrier),
        }
        Ok(None)
    }

    fn handle_multicast(&mut self, now: Time, header: &Header) -> Result<Option<Body>, FrameError> {
        let config = &self.config;
        let is_ours = self
            .ear
            .as_ref()
            .is_some_and(|ear| ear.accepts(config.group, config.epoch, &header.edge));
        match header.message {
            Message::Result(part) if is_ours => self.handle_result(now, Carrier::Multicast, &part),
            _ if is_ours => Err(FrameError::WrongCarrier),
            _ => Err(FrameError::WrongEdge),
        }
    }

    /// Takes note of how a result came.
    fn listen(&mut self, carrier: Carrier, attempt: u8) {
        let Some(ear) = &mut self.ear else { return };
        if let Some(reach) = ear.on_result(carrier, attempt) {
            self.hears = Some(match reach {
                Reach::Open => Hearing::Here,
                Reach::Silent => Hearing::Nobody,
            });
            self.events.push_back(Event::Multicast(reach));
        }
    }

    fn decide(&mut self, decided: Option<Reach>) {
        self.events.extend(decided.map(Event::Datagrams));
    }

    fn handle_result(
        &mut self,
        now: Time,
        carrier: Carrier,
        part: &Part,
    ) -> Result<Option<Body>, FrameError> {
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
        let index = self.index_of(part.operation);
        let operation = self.operations.get_mut(index).ok_or(unexpected)?;
        let receives = operation.receives();
        if receives && !part.has_data && part.shape.elements() > 0 {
            return Err(FrameError::MissingData { sequence: part.sequence.0 });
        }
        let bytes = operation.bytes_of(part.segment);
        operation.on_result();
        self.flight.complete(part.sequence);
        let decided = self.recovery.on_result(now, carrier, part.sequence, part.trail);
        self.decide(decided);
        self.listen(carrier, part.trail.attempt);
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

    /// When [`Endpoint::handle_timeout`] is due; none while nothing is waited for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.recovery.poll_timeout()
    }

    /// Does what is due: repeats what may be lost.
    pub fn handle_timeout(&mut self, now: Time) {
        let decided = self.recovery.handle_timeout(now);
        self.decide(decided);
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

    /// What loss recovery has done so far.
    #[must_use]
    pub fn recovery_stats(&self) -> RecoveryStats {
        self.recovery.stats()
    }

    fn fail(&mut self, abort: Abort) {
        if matches!(self.state, State::Joining | State::Active) {
            self.recovery.clear();
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

    fn bare(&self, message: Message, carrier: Carrier) -> Transmit {
        Transmit { header: self.header(message), body: None, carrier }
    }

    fn header(&self, message: Message) -> Header {
        Header { edge: self.edge(), message }
    }
}
