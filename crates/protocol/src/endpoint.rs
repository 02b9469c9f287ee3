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

mod error;
mod flight;
mod operation;
mod receiving;
mod sending;
mod stream;

use alloc::collections::VecDeque;
use core::num::NonZeroU16;
use core::ops::Range;

use tributary_wire::control::{EndpointGrant, GroupGrant};
use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Hearing, Message};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, OperationNumber};

use crate::multicast::Ear;
use crate::recovery::LowerEnd;
use crate::{Carrier, Reach, RecoveryStats, StreamTerms, Time};

use flight::Flight;
use operation::Operation;
use stream::Streams;

pub use error::{FrameError, StartError};
pub use operation::{OperationSpec, ShortVectors, SpecError};

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

impl EndpointConfig {
    /// What the manager granted to one member of a group, which will have up to `operations_max`
    /// operations under way.
    #[must_use]
    pub fn of_grant(group: &GroupGrant, own: &EndpointGrant, operations_max: usize) -> Self {
        Self {
            group: group.group,
            epoch: group.epoch,
            child: own.child,
            capability: own.capability,
            endpoint: own.endpoint,
            osos: group.osos,
            payload_max_bytes: group.payload_max_bytes,
            operations_max,
            stream: group.stream,
        }
    }
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
    /// None if the group may not stream.
    streams: Option<Streams>,
    next_operation: OperationNumber,
    short_vectors: Option<ShortVectors>,
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
        let streams = config.stream.map(Streams::new);
        let operations = VecDeque::with_capacity(config.operations_max);
        let events = VecDeque::with_capacity(config.operations_max + EVENTS_SPARE);
        Self {
            config,
            state: State::Joining,
            operations,
            flight,
            streams,
            next_operation: OperationNumber::FIRST,
            short_vectors: None,
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

    /// Cuts short vectors so from now on. All members of a group must, before the first operation.
    pub fn cut_short_vectors(&mut self, short: ShortVectors) {
        debug_assert!(!self.has_said_join, "decided after the join was sent");
        self.short_vectors = Some(short);
    }

    /// Starts an operation. Every member starts the same ones in the same order.
    ///
    /// # Errors
    /// If it is no operation, too many are under way, or the group is gone.
    pub fn start(&mut self, spec: OperationSpec) -> Result<OperationNumber, StartError> {
        self.check_start()?;
        let number = self.next_operation;
        let granted_bytes = self.config.payload_max_bytes;
        let short = self.short_vectors.filter(|short| short.include(&spec, self.config.osos));
        let segment_bytes =
            short.map_or(granted_bytes, |it| it.segment_max_bytes.min(granted_bytes));
        self.enqueue(Operation::new(number, spec, segment_bytes)?);
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

    /// Where an operation stands among those under way, if it is one of them.
    fn index_of(&self, number: OperationNumber) -> usize {
        let oldest = self.operations.front().map_or(number, Operation::number);
        number.0.wrapping_sub(oldest.0) as usize
    }

    fn streams(&self) -> &Streams {
        self.streams.as_ref().expect("only a group with streams has operations that are streams")
    }

    fn streams_mut(&mut self) -> &mut Streams {
        self.streams.as_mut().expect("only a group with streams has a stream's words to say")
    }

    fn flight_mut(&mut self, is_stream: bool) -> &mut Flight {
        if is_stream { &mut self.streams_mut().flight } else { &mut self.flight }
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
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.events.clear();
        }
        event
    }

    /// Whether the member has nothing more to send, so that a link may be closed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.peek_transmit().is_none()
    }

    /// Whether everything that was started has been sent, so that the rest is up to others: nothing
    /// has to be done here until results are wanted. Not so while a datagram may have to be repeated.
    #[must_use]
    pub fn is_all_sent(&self) -> bool {
        self.peek_transmit().is_none()
            && !self.recovery.is_waiting()
            && !self.operations.iter().any(Operation::has_unsent)
    }

    /// Whether nothing that was started is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.operations.is_empty()
    }

    /// Results that came twice, and were dropped.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Results that came to the group's multicast address before any copy of them did.
    #[must_use]
    pub fn multicast_results(&self) -> u64 {
        self.ear.as_ref().map_or(0, Ear::results)
    }

    /// Where the next result most likely comes from: by datagram from the aggregation node, to the
    /// group's multicast address if such results have been heard, or over the link if segments are
    /// too long for either.
    #[must_use]
    pub fn expected_carrier(&self) -> Carrier {
        let Some(oldest) = self.operations.front() else { return Carrier::Link };
        let carrier = match oldest.is_stream() {
            true => Carrier::Link,
            false => self.recovery.carrier(oldest.segment_bytes()),
        };
        let hears = self.ear.as_ref().is_some_and(Ear::hears);
        match carrier {
            Carrier::Datagram if hears && oldest.is_for_all() => Carrier::Multicast,
            other => other,
        }
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
}
