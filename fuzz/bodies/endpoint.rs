//! Any sequence of calls and frames at one endpoint. The endpoint never panics, never has more in
//! flight than it was granted, and names only byte ranges within its operation's vector.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU16;

use arbitrary::{Arbitrary, Unstructured};
use tributary_protocol::endpoint::{
    Body, Endpoint, EndpointConfig, Event, FrameError, OperationSpec, Patience,
};
use tributary_protocol::{Carrier, StreamTerms, Time};
use tributary_protocol_testing::NodeEdges;
use tributary_protocol_testing::frames::{carrier, sequence};
use tributary_wire::frame::{
    Abort, AbortReason, Edge, Header, Message, Part, RetransmitState, Target,
};
use tributary_wire::{
    Capability, Datatype, EndpointId, GroupId, OperationNumber, Operator, Sequence,
};

const STEPS_MAX: usize = 300;
const PORT: NonZeroU16 = NonZeroU16::new(7).expect("seven is not zero");
const WINDOW: u16 = 2;

#[derive(Debug, Arbitrary)]
enum Step {
    Start {
        operator: u8,
        datatype: u8,
        elements: u8,
        contributes: bool,
        receives: bool,
        one: bool,
        streams: bool,
    },
    /// A stream grant: for the stream that was requested last, or for another.
    Turn {
        is_right: bool,
        other: u8,
    },
    Send {
        frames: u8,
    },
    /// The right answers to the oldest requests in flight.
    Serve {
        results: u8,
    },
    /// An answer to the `index`th request in flight, changed or not.
    Answer {
        index: u8,
        has_data: bool,
        damage: u8,
        behind: u8,
        is_datagram: bool,
    },
    Joined {
        is_forged: bool,
    },
    /// A datagram that is no result, or a link frame that should be one.
    Sign {
        kind: u8,
        back: u8,
        attempt: u8,
        is_datagram: bool,
    },
    Advance {
        us: u16,
    },
    Upward(u8),
    /// Ends the endpoint in some way, if the number is small. After that it does nothing more.
    End(u8),
    Poll,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) completed: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    /// Requests sent again.
    pub(crate) repeated: u64,
    pub(crate) chunks: u64,
}

struct Run {
    endpoint: Endpoint,
    osos: u16,
    edge: Edge,
    /// Requests sent, and whether they were answered.
    requests: Vec<Part>,
    in_flight: BTreeSet<u32>,
    /// The stream that was requested last, and its chunks in flight.
    stream: Option<OperationNumber>,
    chunks: VecDeque<Part>,
    lengths: BTreeMap<OperationNumber, usize>,
    is_over: bool,
    /// It has left, and nothing has told it yet that all have, or that the group failed.
    awaits_end: bool,
    now: Time,
    reached: Reached,
}

/// Takes `bytes` as a sequence of steps and runs it.
pub(crate) fn run(bytes: &[u8]) -> Reached {
    let mut unstructured = Unstructured::new(bytes);
    let osos = 1 + u16::arbitrary(&mut unstructured).unwrap_or(0) % 8;
    let mut run = Run::new(osos);
    if u8::arbitrary(&mut unstructured).unwrap_or(0) < 192 {
        run.take(Carrier::Link, Message::Joined);
        run.send(2);
        run.take(Carrier::Link, Message::Datagrams(Some(PORT)));
        run.take(Carrier::Datagram, Message::Probed(0));
    }
    for _ in 0..STEPS_MAX {
        if unstructured.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut unstructured) else { break };
        run.step(&step);
    }
    run.poll();
    run.reached
}

impl Run {
    fn new(osos: u16) -> Self {
        let edges = NodeEdges { group: GroupId(1), node: 2 };
        let edge = edges.edge(3);
        let mut endpoint = Endpoint::new(EndpointConfig {
            osos,
            payload_max_bytes: 12,
            operations_max: 4,
            stream: Some(StreamTerms { chunk_bytes: 20, window: WINDOW }),
            ..edges.member(3, EndpointId(5))
        });
        endpoint.offer_datagrams(PORT, 8);
        Self {
            endpoint,
            osos,
            edge,
            requests: Vec::new(),
            in_flight: BTreeSet::new(),
            stream: None,
            chunks: VecDeque::new(),
            lengths: BTreeMap::new(),
            is_over: false,
            awaits_end: false,
            now: Time(0),
            reached: Reached::default(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Start { operator, datatype, elements, contributes, receives, one, streams } => {
                let spec = OperationSpec {
                    operator: Operator::ALL[usize::from(operator) % Operator::ALL.len()],
                    datatype: Datatype::ALL[usize::from(datatype) % Datatype::ALL.len()],
                    elements: u64::from(elements % 32),
                    target: if one { Target::Member(EndpointId(5)) } else { Target::All },
                    contributes,
                    receives,
                    digest: 0,
                };
                self.start(spec, streams);
            }
            Step::Turn { is_right, other } => {
                let request =
                    self.stream.filter(|_| is_right && self.endpoint.awaits_stream_grant());
                let operation = request.unwrap_or(OperationNumber(other.into()));
                self.take(Carrier::Link, Message::StreamGrant(operation));
            }
            Step::Send { frames } => self.send(frames),
            Step::Serve { results } => {
                for _ in 0..results {
                    self.serve_chunk();
                    let Some(oldest) = self.in_flight.first() else { break };
                    let back = self.requests.len() - 1 - *oldest as usize;
                    let retransmit = RetransmitState::default();
                    self.answer(back as u8, true, u8::MAX, retransmit, Carrier::Link);
                    self.poll();
                    if self.is_over {
                        break;
                    }
                }
            }
            Step::Answer { index, has_data, damage, behind, is_datagram } => {
                let retransmit = RetransmitState { attempt: 0, behind: behind.into() };
                self.answer(index, has_data, damage, retransmit, carrier(is_datagram));
            }
            Step::Sign { kind, back, attempt, is_datagram } => {
                self.sign(kind, back, attempt, carrier(is_datagram));
            }
            Step::Advance { us } => {
                self.now = self.now.after_ns(u64::from(us) * 1000);
                self.endpoint.handle_timeout(self.now);
                let patience = if us % 64 == 63 { Patience::WARNED } else { Patience::USUAL };
                self.is_over |= !self.endpoint.ask_node(self.now, patience);
                assert!(self.endpoint.poll_timeout().is_none_or(|due| due > self.now));
            }
            Step::Joined { is_forged } => {
                let forged = Edge { capability: Capability::from_bytes([5; 16]), ..self.edge };
                let edge = if is_forged { forged } else { self.edge };
                self.take_header(Carrier::Link, &Header { edge, message: Message::Joined });
            }
            Step::Upward(which) => {
                let message = if which % 2 == 0 { Message::Join } else { Message::Leave };
                // A member that has left is told so when all have.
                let ends = message == Message::Leave && self.awaits_end;
                self.awaits_end &= !ends;
                let refused = self.reached.refused;
                self.take(Carrier::Link, message);
                assert_eq!(self.reached.refused == refused, ends, "else it only travels upward");
            }
            Step::End(how) => self.end(how),
            Step::Poll => self.poll(),
        }
    }

    fn end(&mut self, how: u8) {
        match how {
            0..3 => {
                self.endpoint.leave();
                self.awaits_end |= !self.is_over;
            }
            3..6 => self.endpoint.abort(AbortReason::MemberAborted),
            6..9 => {
                self.endpoint.handle_link_closed();
                self.awaits_end = false;
            }
            9..12 => {
                self.awaits_end = false;
                let abort = Abort { reason: AbortReason::Withdrawn, at_fault: EndpointId(0) };
                self.take(Carrier::Link, Message::Abort(abort));
            }
            _ => return,
        }
        self.is_over = true;
    }

    fn start(&mut self, spec: OperationSpec, streams: bool) {
        // A driver takes events after each call, also those of what it started last.
        self.poll();
        let started = if streams {
            self.endpoint.start_stream(spec, usize::MAX)
        } else {
            self.endpoint.start(spec)
        };
        if let Ok(number) = started {
            assert!(!self.is_over);
            let length = spec.elements as usize * spec.datatype.size_bytes();
            assert_eq!(self.lengths.insert(number, length), None);
            assert!(self.lengths.len() <= 4);
        }
    }

    fn send(&mut self, frames: u8) {
        for _ in 0..frames {
            let Some(transmit) = self.endpoint.peek_transmit() else { break };
            assert_eq!(self.endpoint.peek_transmit().as_ref(), Some(&transmit));
            assert_eq!(Header::decode(&transmit.header.encode()), Ok(transmit.header));
            self.endpoint.pop_transmit(self.now);
            let part = match transmit.header.message {
                Message::Request(part) => part,
                Message::Chunk(part) => {
                    assert_eq!(transmit.carrier, Carrier::Link, "chunks are the link's");
                    self.on_chunk(part, transmit.body.as_ref());
                    continue;
                }
                Message::StreamRequest(request) => {
                    assert!(!self.is_over && self.chunks.is_empty(), "one stream at a time");
                    self.stream = Some(request.operation);
                    continue;
                }
                _ => continue,
            };
            assert!(!self.is_over, "no request after the end");
            if let Some(body) = &transmit.body {
                self.check_body(body, &part);
            }
            assert_eq!(transmit.body.is_some(), part.has_data);
            if part.retransmit.attempt > 0 {
                let number = part.sequence.distance_from(Sequence::FIRST);
                assert!(self.in_flight.contains(&number), "only what is in flight is repeated");
                let request = self.requests[number as usize];
                assert_eq!(
                    Part { retransmit: RetransmitState::default(), ..part },
                    request,
                    "as it was"
                );
                self.reached.repeated += 1;
                continue;
            }
            let sent = self.requests.len() as u32;
            assert_eq!(part.sequence.distance_from(Sequence::FIRST), sent, "no gap");
            self.requests.push(part);
            self.in_flight.insert(sent);
            let oldest = self.in_flight.first().expect("one was just put in");
            assert!(sent - oldest < u32::from(self.osos), "within the window");
        }
    }

    /// A chunk goes out: with a grant, in order, within the window. Answered in [`Step::Serve`].
    fn on_chunk(&mut self, part: Part, body: Option<&Body>) {
        assert!(!self.is_over && self.stream == Some(part.operation), "with a grant");
        if let Some(body) = body {
            self.check_body(body, &part);
        }
        assert!(self.chunks.len() < usize::from(WINDOW), "within the window");
        self.chunks.push_back(part);
    }

    fn serve_chunk(&mut self) {
        let Some(request) = self.chunks.pop_front() else { return };
        let part = Part { has_data: true, ..request };
        let header = Header { edge: self.edge, message: Message::ChunkResult(part) };
        assert_eq!(
            self.endpoint.handle_frame(self.now, Carrier::Datagram, &header),
            Err(FrameError::WrongCarrier),
            "chunks are the link's"
        );
        let body =
            self.endpoint.handle_frame(self.now, Carrier::Link, &header).expect("it was requested");
        if let Some(body) = body {
            self.check_body(&body, &request);
        }
        self.reached.chunks += u64::from(!self.is_over);
        assert_eq!(
            self.endpoint.handle_frame(self.now, Carrier::Link, &header),
            Ok(None),
            "a copy is dropped"
        );
    }

    fn check_body(&self, body: &Body, part: &Part) {
        assert_eq!(body.operation, part.operation);
        assert_eq!(body.bytes.len(), part.shape.bytes());
        assert!(body.bytes.end <= self.lengths[&body.operation]);
    }

    fn answer(
        &mut self,
        index: u8,
        has_data: bool,
        damage: u8,
        retransmit: RetransmitState,
        carrier: Carrier,
    ) {
        let Some(request) = self.requests.iter().rev().nth(usize::from(index % 16)).copied() else {
            return;
        };
        let mut part =
            Part { has_data: has_data && request.shape.bytes() > 0, retransmit, ..request };
        match damage {
            0 => part.operation = part.operation.next(),
            1 => part.segment.0 ^= 1,
            2 => part.sequence.0 = part.sequence.0.wrapping_add(100),
            3 => part.target = Target::Member(EndpointId(9)),
            _ => {}
        }
        let number = request.sequence.distance_from(Sequence::FIRST);
        let was_open = self.in_flight.contains(&number);
        let header = Header { edge: self.edge, message: Message::Result(part) };
        match self.endpoint.handle_frame(self.now, carrier, &header) {
            Ok(body) => {
                if let Some(body) = body {
                    assert!(was_open && damage >= 4, "each result is taken once");
                    self.check_body(&body, &request);
                }
                if damage >= 4 && !self.is_over {
                    self.in_flight.remove(&number);
                }
            }
            Err(_) => self.reached.refused += 1,
        }
    }

    fn sign(&mut self, kind: u8, back: u8, attempt: u8, carrier: Carrier) {
        let sent = (self.requests.len() as u32).wrapping_sub(u32::from(back % 16));
        let sequence = sequence(sent);
        let message = match kind % 4 {
            0 => Message::Ack { sequence, attempt },
            1 => Message::Nack { sequence },
            2 => Message::Probed(attempt),
            _ => Message::Datagrams(NonZeroU16::new(attempt.into())),
        };
        let belongs = match message {
            // The answer to either kind of question.
            Message::Probed(_) => carrier != Carrier::Multicast,
            Message::Datagrams(_) => carrier == Carrier::Link,
            _ => carrier != Carrier::Link,
        };
        let refused = self.reached.refused;
        self.take(carrier, message);
        assert_eq!(self.reached.refused == refused, belongs, "{message:?} by {carrier:?}");
    }

    fn take(&mut self, carrier: Carrier, message: Message) {
        self.take_header(carrier, &Header { edge: self.edge, message });
    }

    fn take_header(&mut self, carrier: Carrier, header: &Header) {
        match self.endpoint.handle_frame(self.now, carrier, header) {
            Ok(body) => assert_eq!(body, None),
            Err(_) => self.reached.refused += 1,
        }
    }

    fn poll(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Joined
                | Event::DatagramPeer(_)
                | Event::Datagrams(_)
                | Event::Multicast(_)
                | Event::AllHaveLeft => {}
                Event::Completed(number) => {
                    assert!(self.lengths.remove(&number).is_some(), "completes once");
                    self.reached.completed += 1;
                }
                Event::Failed(_) => {
                    assert!(self.is_over);
                    self.reached.failed += 1;
                    assert_eq!(self.reached.failed, 1, "fails once");
                }
            }
        }
    }
}
