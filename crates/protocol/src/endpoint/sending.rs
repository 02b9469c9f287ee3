//! The next frame of a member, and its carrier.

use core::num::NonZeroU16;

use tributary_wire::OperationNumber;
use tributary_wire::frame::{Header, Message, Part, Subscription};

use super::flight::Flight;
use super::stream::NextFrame;
use super::{Body, Endpoint, State, Transmit};
use crate::recovery::Repeat;
use crate::{Carrier, Time};

/// What to send next. Indices are into the operations under way.
#[derive(Clone, Copy, Debug)]
enum Item {
    Join,
    Offer(NonZeroU16),
    Subscribed(Subscription),
    /// A stream is complete.
    Done(OperationNumber),
    /// Leave, or abort.
    LastMessage(Message),
    Probe(Message),
    /// Whether the aggregator is there.
    Question(u8),
    Repeat(Repeat),
    Segment(usize),
    /// A stream is wanted.
    StreamRequest(usize),
    Chunk(usize),
}

impl Endpoint {
    /// The next frame to send, if any. It stays until [`Endpoint::pop_transmit`].
    #[must_use]
    pub fn peek_transmit(&self) -> Option<Transmit> {
        Some(match self.next_item()? {
            Item::Join => self.link_frame(Message::Join),
            Item::Offer(port) => self.link_frame(Message::Datagrams(Some(port))),
            Item::Subscribed(subscription) => self.link_frame(Message::Subscribed(subscription)),
            Item::Done(operation) => self.link_frame(Message::StreamDone(operation)),
            Item::LastMessage(message) => self.link_frame(message),
            Item::StreamRequest(index) => {
                let request = self.operations[index].stream_request();
                self.link_frame(Message::StreamRequest(
                    request.expect("only streams send stream requests"),
                ))
            }
            Item::Question(number) => self.link_frame(Message::Probe(number)),
            Item::Probe(probe) => {
                let header = Header { edge: self.config.edge(), message: probe };
                Transmit { header, body: None, carrier: Carrier::Datagram }
            }
            Item::Repeat(repeat) => self.repeat(repeat),
            Item::Segment(index) => {
                let (part, body) = self.next_part(index, &self.flight);
                let carrier = self.recovery.carrier(part.shape.bytes());
                self.part(&part, Message::Request(part), body, carrier)
            }
            // Chunks are too long for datagrams, and loss recovery does not repeat them.
            Item::Chunk(index) => {
                let (part, body) = self.next_part(index, &self.streams().flight);
                self.part(&part, Message::Chunk(part), body, Carrier::Link)
            }
        })
    }

    /// Confirms that the carrier took the frame that [`Endpoint::peek_transmit`] just returned. No
    /// other method may be called in between.
    ///
    /// # Panics
    /// If there was no such frame.
    pub fn pop_transmit(&mut self, now: Time) {
        match self.next_item().expect("pop follows a peek that found a frame") {
            Item::Join => self.has_sent_join = true,
            Item::Offer(_) => self.offer = None,
            Item::Subscribed(_) => self.subscription = None,
            Item::Done(_) => self.streams_mut().done = None,
            Item::LastMessage(_) => self.last_message = None,
            Item::StreamRequest(index) => {
                let number = self.operations[index].number();
                self.streams_mut().on_requested(number);
            }
            Item::Question(_) => self.liveness.on_asked(),
            Item::Probe(_) => self.recovery.on_probe_sent(now),
            Item::Repeat(repeat) => self.recovery.on_repeated(now, repeat),
            Item::Segment(index) => {
                let (part, _) = self.next_part(index, &self.flight);
                self.operations[index].on_sent();
                self.flight.push(&part);
                if self.recovery.carrier(part.shape.bytes()) == Carrier::Datagram {
                    self.recovery.on_sent(now, part.sequence);
                }
            }
            Item::Chunk(index) => {
                let (part, _) = self.next_part(index, &self.streams().flight);
                self.operations[index].on_sent();
                self.streams_mut().flight.push(&part);
            }
        }
    }

    /// The next thing to send. Older operations come first. A stream without a grant, or with a
    /// full window, does not hold up segments, nor they the stream.
    fn next_item(&self) -> Option<Item> {
        if let Some(item) = self.next_link_item() {
            return Some(item);
        }
        if self.state != State::Active {
            return None;
        }
        if let Some(number) = self.liveness.question() {
            return Some(Item::Question(number));
        }
        if let Some(probe) = self.recovery.probe() {
            return Some(Item::Probe(probe));
        }
        if let Some(repeat) = self.recovery.next_repeat() {
            return Some(Item::Repeat(repeat));
        }
        let segment = self.next_segment();
        let Some(streams) = &self.streams else { return segment.map(Item::Segment) };
        let mut operations = self.operations.iter().enumerate();
        let stream = operations
            .find(|(_, operation)| operation.is_stream() && !operation.is_complete())
            .and_then(|(index, operation)| Some((index, streams.next_frame(operation)?)));
        match (segment, stream) {
            (Some(segment), Some((stream, _))) if segment < stream => Some(Item::Segment(segment)),
            (_, Some((index, NextFrame::Request))) => Some(Item::StreamRequest(index)),
            (_, Some((index, NextFrame::Chunk))) => Some(Item::Chunk(index)),
            (segment, None) => segment.map(Item::Segment),
        }
    }

    /// The oldest operation with a segment to send, if the window has room for one.
    fn next_segment(&self) -> Option<usize> {
        let mut operations = self.operations.iter();
        let found = operations.position(|it| !it.is_stream() && it.has_unsent())?;
        self.flight.has_room().then_some(found)
    }

    /// Messages for the link that go before anything else.
    fn next_link_item(&self) -> Option<Item> {
        if !self.has_sent_join {
            return Some(Item::Join);
        }
        if let Some(port) = self.offer {
            return Some(Item::Offer(port));
        }
        if let Some(subscription) = self.subscription {
            return Some(Item::Subscribed(subscription));
        }
        // Before leaving: a member that left in the middle of a stream would fail the group.
        if let Some(done) = self.streams.as_ref().and_then(|streams| streams.done) {
            return Some(Item::Done(done));
        }
        self.last_message.map(Item::LastMessage)
    }

    fn repeat(&self, repeat: Repeat) -> Transmit {
        let mut part =
            *self.flight.request_of(repeat.sequence).expect("what is repeated is in flight");
        part.retransmit.attempt = repeat.attempt;
        let operation = &self.operations[self.index_of(part.operation)];
        let body = Body { operation: part.operation, bytes: operation.bytes_of(part.segment) };
        self.part(&part, Message::Request(part), body, repeat.carrier)
    }

    fn next_part(&self, index: usize, flight: &Flight) -> (Part, Body) {
        let operation = &self.operations[index];
        let (part, bytes) = operation.next_part(flight.next_sequence());
        (part, Body { operation: operation.number(), bytes })
    }

    fn link_frame(&self, message: Message) -> Transmit {
        let header = Header { edge: self.config.edge(), message };
        Transmit { header, body: None, carrier: Carrier::Link }
    }

    fn part(&self, part: &Part, message: Message, body: Body, carrier: Carrier) -> Transmit {
        let header = Header { edge: self.config.edge(), message };
        Transmit { header, body: part.has_data.then_some(body), carrier }
    }
}
