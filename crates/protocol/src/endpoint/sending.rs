//! What a member sends next, and what carries it.

use core::num::NonZeroU16;

use tributary_wire::OperationNumber;
use tributary_wire::frame::{Header, Hearing, Message, Part};

use super::flight::Flight;
use super::stream::Word;
use super::{Body, Endpoint, State, Transmit};
use crate::recovery::Repeat;
use crate::{Carrier, Time};

/// What there is to send; indices are into the operations under way.
#[derive(Clone, Copy, Debug)]
enum Item {
    Join,
    Offer(NonZeroU16),
    Hears(Hearing),
    /// A stream is complete.
    Done(OperationNumber),
    /// Leave, or abort.
    LastWord(Message),
    Probe(Message),
    Repeat(Repeat),
    Segment(usize),
    /// A stream is wanted.
    Ask(usize),
    Chunk(usize),
}

impl Endpoint {
    /// The next frame to send, if any. It stays until [`Endpoint::pop_transmit`].
    #[must_use]
    pub fn peek_transmit(&self) -> Option<Transmit> {
        Some(match self.next_item()? {
            Item::Join => self.word(Message::Join),
            Item::Offer(port) => self.word(Message::Datagrams(Some(port))),
            Item::Hears(hearing) => self.word(Message::Hears(hearing)),
            Item::Done(operation) => self.word(Message::StreamDone(operation)),
            Item::LastWord(word) => self.word(word),
            Item::Ask(index) => {
                let ask = self.operations[index].stream_ask();
                self.word(Message::StreamAsk(ask.expect("only streams are asked for")))
            }
            Item::Probe(probe) => {
                let header = Header { edge: self.edge(), message: probe };
                Transmit { header, body: None, carrier: Carrier::Datagram }
            }
            Item::Repeat(repeat) => self.repeat(repeat),
            Item::Segment(index) => {
                let (part, body) = self.next_part(index, &self.flight);
                let carrier = self.recovery.carrier(part.shape.bytes());
                self.part(&part, Message::Request(part), body, carrier)
            }
            // Never by datagram: chunks are longer than one may be, and nobody repeats them.
            Item::Chunk(index) => {
                let (part, body) = self.next_part(index, &self.streams().flight);
                self.part(&part, Message::Chunk(part), body, Carrier::Link)
            }
        })
    }

    /// The carrier has taken the frame that [`Endpoint::peek_transmit`] just gave. Nothing else may
    /// be called in between.
    ///
    /// # Panics
    /// If there was no such frame.
    pub fn pop_transmit(&mut self, now: Time) {
        match self.next_item().expect("pop follows a peek that found a frame") {
            Item::Join => self.has_said_join = true,
            Item::Offer(_) => self.offer = None,
            Item::Hears(_) => self.hears = None,
            Item::Done(_) => self.streams_mut().done = None,
            Item::LastWord(_) => self.last_word = None,
            Item::Ask(index) => {
                let number = self.operations[index].number();
                self.streams_mut().on_asked(number);
            }
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

    /// What is to be sent next. Older operations come first, but a stream that waits for its turn,
    /// or whose window is full, holds up no segments, nor they it.
    fn next_item(&self) -> Option<Item> {
        if let Some(word) = self.next_word() {
            return Some(word);
        }
        if self.state != State::Active {
            return None;
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
            .and_then(|(index, operation)| Some((index, streams.next_word(operation)?)));
        match (segment, stream) {
            (Some(segment), Some((stream, _))) if segment < stream => Some(Item::Segment(segment)),
            (_, Some((index, Word::Ask))) => Some(Item::Ask(index)),
            (_, Some((index, Word::Chunk))) => Some(Item::Chunk(index)),
            (segment, None) => segment.map(Item::Segment),
        }
    }

    /// The oldest operation with a segment to send, if the window has room for one.
    fn next_segment(&self) -> Option<usize> {
        let mut operations = self.operations.iter();
        let found = operations.position(|it| !it.is_stream() && it.has_unsent())?;
        self.flight.has_room().then_some(found)
    }

    /// What the link is to carry before anything else.
    fn next_word(&self) -> Option<Item> {
        if !self.has_said_join {
            return Some(Item::Join);
        }
        if let Some(port) = self.offer {
            return Some(Item::Offer(port));
        }
        if let Some(hearing) = self.hears {
            return Some(Item::Hears(hearing));
        }
        // Before the last word: a member that left unfinished would fail the group.
        if let Some(done) = self.streams.as_ref().and_then(|streams| streams.done) {
            return Some(Item::Done(done));
        }
        self.last_word.map(Item::LastWord)
    }

    fn repeat(&self, repeat: Repeat) -> Transmit {
        let mut part = *self.flight.asked(repeat.sequence).expect("what is repeated is in flight");
        part.trail.attempt = repeat.attempt;
        let operation = &self.operations[self.index_of(part.operation)];
        let body = Body { operation: part.operation, bytes: operation.bytes_of(part.segment) };
        self.part(&part, Message::Request(part), body, repeat.carrier)
    }

    fn next_part(&self, index: usize, flight: &Flight) -> (Part, Body) {
        let operation = &self.operations[index];
        let (part, bytes) = operation.next_part(flight.next_sequence());
        (part, Body { operation: operation.number(), bytes })
    }

    fn word(&self, message: Message) -> Transmit {
        let header = Header { edge: self.edge(), message };
        Transmit { header, body: None, carrier: Carrier::Link }
    }

    fn part(&self, part: &Part, message: Message, body: Body, carrier: Carrier) -> Transmit {
        let header = Header { edge: self.edge(), message };
        Transmit { header, body: part.has_data.then_some(body), carrier }
    }
}
