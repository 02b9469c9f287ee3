//! Frames from the aggregation node, and what they complete.

use tributary_wire::frame::{Header, Message, Part, Subscription};

use super::operation::Operation;
use super::{Body, Endpoint, Event, FrameError, State};
use crate::{Carrier, Reachability, Time};

/// A result that was awaited.
struct Taken {
    body: Option<Body>,
    /// Whether it was its operation's last.
    is_complete: bool,
}

impl Endpoint {
    /// Takes one frame from the aggregation node. Returns where its payload, if any, belongs; the
    /// driver copies it there before it polls for events.
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
        if header.edge != self.config.edge() {
            return Err(FrameError::WrongEdge);
        }
        self.liveness.on_frame();
        if carrier == Carrier::Datagram {
            self.recovery.on_datagram(now);
        }
        match (header.message, carrier) {
            (Message::Result(part), _) => return self.handle_result(now, carrier, &part),
            (Message::Joined, Carrier::Link) => {
                if self.state == State::Joining {
                    self.state = State::Active;
                    self.events.push_back(Event::Joined);
                }
            }
            (Message::ChunkResult(part), Carrier::Link) => return self.handle_chunk_result(&part),
            (Message::StreamGrant(operation), Carrier::Link) => {
                self.handle_stream_grant(operation)?;
            }
            (Message::Abort(abort), Carrier::Link) => self.fail(abort),
            (Message::Leave, Carrier::Link) if self.state == State::Left => {
                self.state = State::Over;
                self.events.push_back(Event::AllHaveLeft);
            }
            (Message::Datagrams(_), Carrier::Link) if !self.recovery.is_offered() => {}
            (Message::Datagrams(port), Carrier::Link) => {
                let decided = self.recovery.on_answer(now, port);
                self.events.extend(port.map(Event::DatagramPeer));
                self.decide(decided);
            }
            // It answers `Endpoint::ask_node`, and has said so by coming.
            (Message::Probed(_), Carrier::Link) => {}
            (Message::Probed(attempt), Carrier::Datagram) => {
                let decided = self.recovery.on_probed(now, attempt);
                self.decide(decided);
            }
            (Message::Ack { sequence, attempt }, Carrier::Datagram) => {
                self.recovery.on_ack(now, sequence, attempt);
            }
            (Message::Nack { sequence }, Carrier::Datagram) => {
                self.recovery.on_nack(sequence);
            }
            (
                Message::Join
                | Message::Request(_)
                | Message::Leave
                | Message::Probe(_)
                | Message::Subscribed(_),
                _,
            ) => return Err(FrameError::WrongDirection),
            _ => return Err(FrameError::WrongCarrier),
        }
        Ok(None)
    }

    fn handle_multicast(&mut self, now: Time, header: &Header) -> Result<Option<Body>, FrameError> {
        let ours = self.multicast.as_ref().map(|multicast| multicast.edge(self.config.edge()));
        let is_ours = ours == Some(header.edge);
        match header.message {
            Message::Result(part) if is_ours => self.handle_result(now, Carrier::Multicast, &part),
            _ if is_ours => Err(FrameError::WrongCarrier),
            _ => Err(FrameError::WrongEdge),
        }
    }

    /// Notes how a result came, and changes the subscription if necessary.
    fn update_subscription(&mut self, carrier: Carrier, attempt: u8) {
        let Some(multicast) = &mut self.multicast else { return };
        if let Some(reachability) = multicast.on_result(carrier, attempt) {
            self.subscription = Some(match reachability {
                Reachability::Reachable => Subscription::Here,
                Reachability::Unreachable => Subscription::Nobody,
            });
            self.events.push_back(Event::Multicast(reachability));
        }
    }

    pub(super) fn decide(&mut self, decided: Option<Reachability>) {
        self.events.extend(decided.map(Event::Datagrams));
    }

    fn handle_chunk_result(&mut self, part: &Part) -> Result<Option<Body>, FrameError> {
        if self.state != State::Active {
            return Ok(None);
        }
        let operation = part.operation;
        if self.streams.as_ref().is_some_and(|streams| streams.is_running(operation)) {
            return self.take_chunk_result(part);
        }
        let is_under_way = |it: &Operation| it.number() == operation && !it.is_complete();
        if !operation.is_before(self.next_operation) || self.operations.iter().any(is_under_way) {
            return Err(FrameError::StreamNotGranted { operation });
        }
        self.repeats += 1;
        Ok(None)
    }

    fn take_chunk_result(&mut self, part: &Part) -> Result<Option<Body>, FrameError> {
        let Some(taken) = self.take_result(part, true)? else { return Ok(None) };
        if taken.is_complete {
            self.streams_mut().on_complete(part.operation);
            self.retire_complete();
        }
        Ok(taken.body)
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
        let Some(taken) = self.take_result(part, false)? else { return Ok(None) };
        let decided = self.recovery.on_result(now, carrier, part.sequence, part.retransmit);
        self.decide(decided);
        self.update_subscription(carrier, part.retransmit.attempt);
        if taken.is_complete {
            self.retire_complete();
        }
        Ok(taken.body)
    }

    /// Counts a result; none if it was already counted.
    fn take_result(&mut self, part: &Part, is_chunk: bool) -> Result<Option<Taken>, FrameError> {
        let unexpected = FrameError::Unexpected { sequence: part.sequence.0 };
        let flight = self.flight_mut(is_chunk);
        if flight.is_past(part.sequence) {
            self.repeats += 1;
            return Ok(None);
        }
        if !flight.expects(part) {
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
        let is_complete = operation.is_complete();
        self.flight_mut(is_chunk).complete(part.sequence);
        let body = Body { operation: part.operation, bytes };
        Ok(Some(Taken { body: (receives && part.has_data).then_some(body), is_complete }))
    }

    /// Reports operations that have become complete, and removes those before which none is under
    /// way. Operations complete in the order in which they were started, except that streams and
    /// other operations may pass each other.
    fn retire_complete(&mut self) {
        let mut is_next = [true; 2];
        for operation in &mut self.operations {
            let is_next = &mut is_next[usize::from(operation.is_stream())];
            *is_next &= operation.is_complete();
            if *is_next && operation.is_told_first() {
                self.events.push_back(Event::Completed(operation.number()));
            }
        }
        // Later operations may be complete before the oldest. They keep their places until it is.
        while self.operations.pop_front_if(|front| front.is_complete()).is_some() {}
        if self.operations.is_empty() {
            // Starts again at the beginning of the queue's memory, so that a member with one
            // operation at a time uses the same cache lines. The event queue does the same.
            self.operations.clear();
        }
    }
}
