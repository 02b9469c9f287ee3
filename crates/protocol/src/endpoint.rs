//! A member of a group: cuts vectors into segments, keeps as many in flight as the group was
//! granted, and places results.
//!
//! Payload stays in the application's buffers. [`Endpoint::peek_transmit`] names the part of the
//! vector that a frame carries; [`Endpoint::handle_frame`] names the part that a result fills.
//! Segments use consecutive sequence numbers across operations, so all members number them alike
//! without communicating. A segment is sent only while fewer than `osos` sequence numbers separate
//! it from the oldest incomplete one. Aggregation nodes rely on that (see [`crate::node`]).
//!
//! A driver that can carry datagrams calls [`Endpoint::offer_datagrams`]. Requests travel by
//! datagram once the aggregation node has answered that way, and are repeated until they are
//! answered (see [`crate::Reachability`]).

mod error;
mod flight;
mod operation;
mod receiving;
mod sending;
mod stream;
mod streaming;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU16;
use core::ops::Range;

use tributary_wire::control::{EndpointGrant, GroupGrant};
use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Message, Subscription, Version};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, OperationNumber};

use crate::failover::{Cut, Segments, Standing};
use crate::liveness::NodeLiveness;
use crate::multicast::MulticastReceiver;
use crate::recovery::LowerEnd;
use crate::{Carrier, Reachability, RecoveryStats, StreamTerms, Time};

use flight::Flight;
use operation::Operation;
use stream::Streams;

pub use crate::liveness::Patience;
pub use error::{FrameError, StartError};
pub use operation::{OperationSpec, ShortVectors, SpecError};

/// A member's grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The layout of its frames.
    pub frame_version: Version,
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
            frame_version: group.frame_version,
            child: own.child,
            capability: own.capability,
            endpoint: own.endpoint,
            osos: group.osos,
            payload_max_bytes: group.payload_max_bytes,
            operations_max,
            stream: group.stream,
        }
    }

    /// The edge that the member's frames carry.
    #[must_use]
    pub const fn edge(&self) -> Edge {
        Edge {
            group: self.group,
            epoch: self.epoch,
            child: self.child,
            capability: self.capability,
            version: self.frame_version,
        }
    }
}

/// Events besides completions that may wait to be polled: joined, failed, and changes of
/// reachability.
const EVENTS_SPARE: usize = 6;

/// A member of a group; see the module documentation.
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
    has_sent_join: bool,
    /// The next message for the link, besides requests. At most one of each kind waits.
    offer: Option<NonZeroU16>,
    last_message: Option<Message>,
    multicast: Option<MulticastReceiver>,
    /// The subscription to multicast, if the aggregator has to be told of it.
    subscription: Option<Subscription>,
    recovery: LowerEnd,
    liveness: NodeLiveness,
    repeats: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Joining,
    Active,
    /// Left in good order. Others may need this member until all have left.
    Left,
    /// All have left.
    Over,
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
    /// The operation is complete, and its results are in place.
    Completed(OperationNumber),
    /// The group failed. Operations that have not completed never will.
    Failed(Abort),
    /// This member has left, and so have all others: nobody needs it any more.
    AllHaveLeft,
    /// The aggregation node takes datagrams at this UDP port of the address that the link leads to.
    /// The driver delivers datagrams from there from now on.
    DatagramPeer(NonZeroU16),
    /// Whether results sent to the group's multicast address arrive: sent when the first arrives,
    /// and when they cease to.
    Multicast(Reachability),
    /// Whether datagrams arrive: sent once after the offer, and again if they cease to arrive.
    Datagrams(Reachability),
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
            has_sent_join: false,
            offer: None,
            last_message: None,
            multicast: None,
            subscription: None,
            recovery,
            liveness: NodeLiveness::default(),
            repeats: 0,
        }
    }

    /// Offers the aggregation node to exchange datagrams for segments up to `segment_max_bytes`;
    /// longer ones go over the link. This side takes them at the UDP port `port` of the address
    /// that the link starts from. To be called once, before the first frame is sent.
    pub fn offer_datagrams(&mut self, port: NonZeroU16, segment_max_bytes: u32) {
        debug_assert!(!self.has_sent_join, "offered after the join was sent");
        self.offer = Some(port);
        self.recovery.on_offering(segment_max_bytes);
    }

    /// Takes results that are sent to the group's multicast address and show `capability`.
    pub fn subscribe_multicast(&mut self, capability: Capability) {
        self.multicast = Some(MulticastReceiver::new(capability));
    }

    /// Cuts short vectors so from now on. All members of a group must do so, before the first
    /// operation.
    pub fn cut_short_vectors(&mut self, short: ShortVectors) {
        debug_assert!(!self.has_sent_join, "decided after the join was sent");
        self.short_vectors = Some(short);
    }

    /// Cuts short vectors otherwise from the next operation on; none as they come. All members of a group do so
    /// between the same two operations.
    pub fn recut_short_vectors(&mut self, short: Option<ShortVectors>) {
        self.short_vectors = short;
    }

    /// Starts an operation. Every member starts the same ones in the same order.
    ///
    /// # Errors
    /// If the operation is invalid, too many are under way, or the group is gone.
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
            State::Left | State::Over => return Err(StartError::Left),
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

    /// Leaves the group, as the member's last action. Operations under way are given up. A driver that keeps the link hears
    /// of the group's end: [`Event::AllHaveLeft`], or [`Event::Failed`] if it fails before.
    pub fn leave(&mut self) {
        if matches!(self.state, State::Joining | State::Active) {
            self.state = State::Left;
            self.operations.clear();
            self.recovery.clear();
            self.last_message = Some(Message::Leave);
        }
    }

    /// Fails the group from this side, for instance because a process of this host was lost.
    pub fn abort(&mut self, reason: AbortReason) {
        self.pass_on(Abort { reason, at_fault: self.config.endpoint });
    }

    /// Fails the group for a reason that was heard of elsewhere. Another endpoint may be at fault.
    pub fn pass_on(&mut self, abort: Abort) {
        if matches!(self.state, State::Joining | State::Active) {
            self.fail(abort);
            self.last_message = Some(Message::Abort(abort));
        }
    }

    /// An operation's index among those under way, if it is one of them.
    fn index_of(&self, number: OperationNumber) -> usize {
        let oldest = self.operations.front().map_or(number, Operation::number);
        number.0.wrapping_sub(oldest.0) as usize
    }

    fn streams(&self) -> &Streams {
        self.streams.as_ref().expect("only a group with streams has operations that are streams")
    }

    fn streams_mut(&mut self) -> &mut Streams {
        self.streams.as_mut().expect("only a group with streams handles stream frames")
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

    /// Asks the aggregation node whether it is there. To be called now and then in a long wait, as often as the driver
    /// likes, and after the link has been polled: what has come is an answer. An aggregator that tries the patience is
    /// given up, and told so if it should hear it. `false` if it is given up now.
    pub fn ask_node(&mut self, now: Time, patience: Patience) -> bool {
        if self.state != State::Active || self.liveness.ask(now, patience) {
            return true;
        }
        self.abort(AbortReason::NodeLost);
        false
    }

    /// Whether the aggregator has left a question of [`Endpoint::ask_node`] unanswered so far.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        self.state == State::Active && self.liveness.awaits_answer()
    }

    /// When [`Endpoint::handle_timeout`] is due; none without a timer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.recovery.poll_timeout()
    }

    /// Repeats the requests that are due.
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

    /// Whether the member has nothing more to send, so the link may be closed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.peek_transmit().is_none()
    }

    /// Whether everything that was started has been sent. Nothing has to be done here until results
    /// come. False while a datagram may have to be repeated.
    #[must_use]
    pub fn is_all_sent(&self) -> bool {
        self.peek_transmit().is_none()
            && !self.recovery.is_waiting()
            && !self.operations.iter().any(Operation::has_unsent)
    }

    /// Whether no operation is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.operations.is_empty()
    }

    /// How the vector of an operation under way is cut; none if it is not.
    #[must_use]
    pub fn cut(&self, number: OperationNumber) -> Option<Cut> {
        let operation = self.operations.get(self.index_of(number))?;
        let stream = operation.is_stream().then_some(self.config.stream).flatten();
        let window = stream.map_or(self.config.osos, |terms| terms.window);
        Some(operation.cut(window))
    }

    /// How far this member has come, in a group that failed. For members that have one operation under
    /// way at a time.
    #[must_use]
    pub fn standing(&self) -> Standing {
        debug_assert!(self.operations.len() <= 1, "one operation at a time");
        let Some(operation) = self.operations.front() else {
            return Standing {
                operation: self.next_operation,
                is_started: false,
                complete: Segments::default(),
            };
        };
        let is_stream = operation.is_stream();
        let flight = if is_stream { &self.streams().flight } else { &self.flight };
        let in_flight = match is_stream && !self.streams().is_running(operation.number()) {
            // A stream that was not granted has nothing in flight.
            true => Vec::new(),
            false => flight.in_flight().collect(),
        };
        Standing {
            operation: operation.number(),
            is_started: true,
            complete: Segments {
                prefix: operation.sent_segments() - in_flight.len() as u32,
                window: in_flight,
            },
        }
    }

    /// Results that came a second time and were dropped.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Results that came by multicast before any copy of them did.
    #[must_use]
    pub fn multicast_results(&self) -> u64 {
        self.multicast.as_ref().map_or(0, MulticastReceiver::results)
    }

    /// How the next result will most likely come: by datagram from the aggregation node, by
    /// multicast if such results have arrived, or over the link if segments are too long for
    /// either.
    #[must_use]
    pub fn expected_carrier(&self) -> Carrier {
        let Some(oldest) = self.operations.front() else { return Carrier::Link };
        let carrier = match oldest.is_stream() {
            true => Carrier::Link,
            false => self.recovery.carrier(oldest.segment_bytes()),
        };
        let is_subscribed = self.multicast.as_ref().is_some_and(MulticastReceiver::is_subscribed);
        match carrier {
            Carrier::Datagram if is_subscribed && oldest.is_for_all() => Carrier::Multicast,
            other => other,
        }
    }

    /// What loss recovery has done so far.
    #[must_use]
    pub fn recovery_stats(&self) -> RecoveryStats {
        self.recovery.stats()
    }

    fn fail(&mut self, abort: Abort) {
        if matches!(self.state, State::Joining | State::Active | State::Left) {
            self.recovery.clear();
            self.state = State::Failed(abort);
            if let Some(streams) = &mut self.streams {
                streams.done = None;
            }
            self.events.push_back(Event::Failed(abort));
        }
    }
}
