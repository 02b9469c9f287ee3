//! Any sequence of orders, frames, closings and timeouts at one aggregator. The aggregator never panics, its
//! accounts stay right, and an honest group beside the attacked ones is not disturbed.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use arbitrary::{Arbitrary, Unstructured};
use tributary_protocol::node::{
    ChildConfig, Event, FrameError, GroupConfig, Node, NodeConfig, ParentConfig, PortId,
    StreamConfig, StreamLimits,
};
use tributary_protocol::payloads::ArenaId;
use tributary_protocol::{Carrier, StreamTerms, Time};
use tributary_protocol_testing::frames::{carrier, part, sequence};
use tributary_protocol_testing::{NodeEdges, NodeMemory};
use tributary_wire::frame::{
    Abort, AbortReason, Edge, Header, Message, Part, RetransmitState, Shape, StreamRequest,
    StreamShape, Target, Versions,
};
use tributary_wire::{
    Capability, ChildIndex, Datatype, EndpointId, Epoch, GroupId, OperationNumber, Operator,
    SegmentIndex, Sequence, TreeId,
};

const STEPS_MAX: usize = 200;
const DATAGRAM_PORT: NonZeroU16 = NonZeroU16::new(7).expect("seven is not zero");
const GROUPS: u32 = 4;
const OSOS_MAX: u32 = 16;
const PAYLOAD_MAX_BYTES: u32 = 32;
const TIMEOUT_NS: u64 = 1000;
/// More than a child's or a parent's queue may ever hold: slots for 8 segments, and a few more.
const QUEUE_MAX: usize = 16 + 5 + 8 + 1;
const TREES: u16 = 2;
const TERMS: StreamTerms = StreamTerms { chunk_bytes: 8, window: 3 };
/// The honest group. Its ports are beyond all that a step names.
const HONEST: GroupId = GroupId(GROUPS);
const HONEST_PORTS: [PortId; 2] = [PortId(30), PortId(31)];
const PORTS: u32 = 20;

#[derive(Debug, Arbitrary)]
enum Step {
    Install {
        group: u8,
        epoch: u8,
        osos: u8,
        payload: u8,
        children: u8,
        parent: Option<u8>,
        stream: Option<u8>,
    },
    /// Installs a group and joins all its children, each over a port of its own; below a parent
    /// that takes datagrams, or at the root.
    Form {
        group: u8,
        osos: u8,
        children: u8,
        is_below: bool,
    },
    /// The next request of a child that [`Step::Form`] joined, or one near it.
    Request {
        group: u8,
        child: u8,
        skip: u8,
        elements: u8,
        attempt: u8,
        is_datagram: bool,
    },
    /// A frame from a parent to a group below it, valid or not.
    FromParent {
        group: u8,
        message: AnyMessage,
        is_datagram: bool,
    },
    Offer {
        group: u8,
    },
    AdvanceFar {
        ms: u8,
    },
    /// The next stream frame of a formed group's child, or one near it.
    Stream {
        group: u8,
        child: u8,
        word: u8,
        skip: u8,
    },
    /// All children of a formed group request a stream, send some of its chunks and, if there are
    /// many, are done with it.
    StreamOn {
        group: u8,
        chunks: u8,
    },
    Withdraw {
        group: u8,
        epoch: u8,
    },
    Frame {
        is_datagram: bool,
        port: u8,
        edge: AnyEdge,
        message: AnyMessage,
    },
    PortClosed {
        port: u8,
    },
    Advance {
        ns: u16,
    },
    Drain {
        port: u8,
        frames: u8,
    },
    HonestSum {
        left: u32,
        right: u32,
        is_reversed: bool,
    },
}

#[derive(Debug, Arbitrary)]
struct AnyEdge {
    group: u8,
    epoch: u8,
    child: u8,
    is_forged: bool,
}

#[derive(Debug, Arbitrary)]
enum AnyMessage {
    Join,
    Joined,
    Request(AnyPart),
    Result(AnyPart),
    Abort(u8),
    Leave,
    Datagrams(u16),
    Probe(u8),
    Probed(u8),
    Ack(u8, u8),
    Nack(u8),
    StreamRequest(AnyPart),
    StreamGrant(u8),
    Chunk(AnyPart),
    ChunkResult(AnyPart),
    StreamDone(u8),
}

#[derive(Debug, Arbitrary)]
struct AnyPart {
    number: u8,
    is_far: bool,
    operator: u8,
    elements: u8,
    member: Option<u8>,
    has_data: bool,
    attempt: u8,
    behind: u8,
}

impl AnyPart {
    fn part(&self, is_request: bool) -> Part {
        let operators = [Operator::Sum, Operator::Broadcast, Operator::Barrier, Operator::Max];
        let operator = operators[usize::from(self.operator) % operators.len()];
        let elements = u32::from(self.elements % 40);
        let shape = Shape::new(operator, Datatype::U8, elements).unwrap_or(Shape::BARRIER);
        let far = if self.is_far { 1 << 30 } else { 0 };
        let number = u32::from(self.number % 24) + far;
        let is_reduction = shape.operator().is_reduction();
        Part {
            target: self.member.map_or(Target::All, |it| Target::Member(EndpointId(it.into()))),
            has_data: shape != Shape::BARRIER && (self.has_data || (is_reduction && is_request)),
            retransmit: RetransmitState {
                attempt: self.attempt,
                behind: if is_request { 0 } else { self.behind.into() },
            },
            ..part(OperationNumber(number), sequence(number), shape)
        }
    }
}

/// First number of streamed operations. No request has such a number, because the group fails if an
/// operation is a stream for one member and none for another.
const FIRST_STREAM: u32 = 1 << 20;

/// The port to a formed group's parent: behind those of all children.
fn upward(group: GroupId) -> PortId {
    PortId(4 * GROUPS + group.0)
}

fn number(of: u8) -> Sequence {
    sequence(u32::from(of % 24))
}

impl AnyMessage {
    fn message(&self) -> Message {
        match *self {
            Self::Datagrams(port) => Message::Datagrams(NonZeroU16::new(port)),
            Self::Probe(attempt) => Message::Probe(attempt),
            Self::Probed(attempt) => Message::Probed(attempt % 2),
            Self::Ack(sequence, attempt) => Message::Ack { sequence: number(sequence), attempt },
            Self::Nack(sequence) => Message::Nack { sequence: number(sequence) },
            Self::Join => Message::Join,
            Self::Joined => Message::Joined,
            Self::Leave => Message::Leave,
            Self::Request(ref part) => Message::Request(part.part(true)),
            Self::Result(ref part) => Message::Result(part.part(false)),
            Self::StreamRequest(ref part) => {
                let Part { operation, shape, target, .. } = part.part(true);
                let elements = u64::from(shape.elements().max(1));
                let shape = StreamShape::new(shape.operator(), shape.datatype(), elements)
                    .unwrap_or_else(|_| stream_shape(elements));
                Message::StreamRequest(StreamRequest { operation, shape, target })
            }
            Self::StreamGrant(number) => Message::StreamGrant(OperationNumber(u32::from(number))),
            Self::Chunk(ref part) => Message::Chunk(part.part(true)),
            Self::ChunkResult(ref part) => {
                let retransmit = RetransmitState { behind: 0, ..part.part(false).retransmit };
                Message::ChunkResult(Part { retransmit, ..part.part(false) })
            }
            Self::StreamDone(number) => Message::StreamDone(OperationNumber(u32::from(number))),
            Self::Abort(reason) => Message::Abort(Abort {
                reason: AbortReason::ALL[usize::from(reason) % AbortReason::ALL.len()],
                at_fault: EndpointId(0),
            }),
        }
    }
}

fn stream_shape(elements: u64) -> StreamShape {
    StreamShape::new(Operator::Sum, Datatype::U8, elements).expect("short")
}

/// A chunk of a vector of twenty bytes.
fn chunk_of(operation: OperationNumber, chunk: u32) -> Part {
    let elements = if chunk == 2 { 4 } else { 8 };
    let shape = Shape::new(Operator::Sum, Datatype::U8, elements).expect("a chunk");
    let segment = SegmentIndex(2_u32.wrapping_sub(chunk));
    Part { segment, ..part(operation, sequence(chunk), shape) }
}

/// Counters of a run, so that a caller can see that inputs reach the machine's depths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) honest_sums: u64,
    pub(crate) requests: u64,
    pub(crate) results: u64,
    pub(crate) refused: u64,
    pub(crate) groups_failed: u64,
    pub(crate) repeated: u64,
    pub(crate) acks: u64,
    pub(crate) chunks: u64,
    pub(crate) streams: u64,
}

struct Run {
    node: Node,
    memory: NodeMemory,
    now: Time,
    /// Outstanding operations of each installed group, by its arena's number.
    osos: BTreeMap<ArenaId, u32>,
    honest_number: u32,
    /// How many requests each formed child has sent.
    sent: BTreeMap<(GroupId, u16), u32>,
    /// How many streams each formed child has completed, and how many chunks of the next it has
    /// sent.
    streamed: BTreeMap<(GroupId, u16), (u32, u32)>,
    reached: Reached,
}

/// Takes `bytes` as a sequence of steps and runs it.
pub(crate) fn run(bytes: &[u8]) -> Reached {
    let mut unstructured = Unstructured::new(bytes);
    let mut run = Run::new();
    for _ in 0..STEPS_MAX {
        if unstructured.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut unstructured) else { break };
        run.step(&step);
        run.check();
    }
    // Whatever was done to the aggregator, the honest group still works.
    run.honest_sum(1, 2, false);
    run.check();
    // Once no group has the lock or waits for it, no removed group does either.
    for group in (0..GROUPS).map(GroupId) {
        for epoch in (0..2).map(Epoch) {
            run.node.withdraw(group, epoch);
        }
    }
    run.check();
    assert_eq!(run.node.streams_waiting(), 0);
    run.honest_stream();
    run.check();
    let stats = run.node.stats();
    Reached {
        requests: stats.requests,
        results: stats.results,
        groups_failed: stats.groups_failed,
        repeated: stats.repeated,
        acks: stats.acks,
        chunks: stats.chunks,
        streams: stats.streams,
        ..run.reached
    }
}

/// The edges below the aggregator in a group's tree.
fn edges(group: GroupId) -> NodeEdges {
    NodeEdges { group, node: 0 }
}

/// Two members below each child.
fn children(group: GroupId, count: u16) -> Vec<ChildConfig> {
    edges(group).children(count, 0, 2)
}

impl Run {
    fn new() -> Self {
        let mut node = Node::new(NodeConfig {
            frame_versions: Versions::SPOKEN,
            radix_max: 4,
            osos_max: OSOS_MAX,
            groups_max: GROUPS + 1,
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            join_timeout_ns: TIMEOUT_NS,
            streams: StreamLimits { trees: TREES, window_max: 3, chunk_bytes_max: 8 },
        });
        node.take_datagrams(DATAGRAM_PORT, 24);
        let mut run = Self {
            node,
            memory: NodeMemory::with_checks(true),
            now: Time(0),
            osos: BTreeMap::new(),
            honest_number: 0,
            sent: BTreeMap::new(),
            streamed: BTreeMap::new(),
            reached: Reached::default(),
        };
        run.install(GroupConfig {
            group: HONEST,
            epoch: Epoch(0),
            frame_version: Versions::SPOKEN.newest,
            osos: 1,
            payload_max_bytes: 4,
            children: children(HONEST, 2),
            parent: None,
            stream: Some(StreamConfig { tree: TreeId(0), terms: TERMS }),
        });
        for (child, port) in (0..).zip(HONEST_PORTS) {
            let header = Header { edge: edges(HONEST).edge(child), message: Message::Join };
            run.handle(port, Carrier::Link, &header, &[]).expect("honest");
            run.drain(port, usize::MAX);
        }
        run.drain_events();
        run
    }

    fn install(&mut self, config: GroupConfig) {
        let osos = u32::from(config.osos);
        let group = config.group;
        if let Ok(arena) = self.node.install(self.now, config) {
            self.memory.install(&self.node, group, arena);
            self.osos.insert(arena.id, osos);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Install { group, epoch, osos, payload, children: count, parent, stream } => {
                let group = GroupId(u32::from(group) % (GROUPS + 3));
                self.install(GroupConfig {
                    group,
                    epoch: Epoch(u32::from(epoch % 2)),
                    frame_version: Versions::SPOKEN.newest,
                    osos: u16::from(osos % 10),
                    payload_max_bytes: u32::from(payload % 36),
                    children: children(group, u16::from(count % 6)),
                    parent: parent.map(|port| ParentConfig {
                        name: ["one", "other"][usize::from(port % 2)].into(),
                        port: PortId(u32::from(port) % PORTS),
                        child: ChildIndex(0),
                        capability: edges(group).capability(0),
                    }),
                    stream: stream.map(|what| StreamConfig {
                        tree: TreeId(u16::from(what % 3)),
                        terms: StreamTerms {
                            chunk_bytes: u32::from(what / 4 % 10),
                            window: u16::from(what / 64),
                        },
                    }),
                });
            }
            Step::Form { group, osos, children, is_below } => {
                self.form(group, osos, children, is_below);
            }
            Step::Request { group, child, skip, elements, attempt, is_datagram } => {
                let retransmit = RetransmitState { attempt, behind: 0 };
                self.request(group, child, skip, elements, retransmit, carrier(is_datagram));
            }
            Step::FromParent { group, ref message, is_datagram } => {
                let group = GroupId(u32::from(group) % GROUPS);
                self.say_down(group, message.message(), carrier(is_datagram));
            }
            Step::Offer { group } => {
                self.node.offer_datagrams(GroupId(u32::from(group) % (GROUPS + 3)));
            }
            Step::AdvanceFar { ms } => self.advance(u64::from(ms) * 1_000_000),
            Step::Stream { group, child, word, skip } => self.stream(group, child, word, skip),
            Step::StreamOn { group, chunks } => {
                for word in [0, 1, 1, 1, 3].into_iter().take(1 + usize::from(chunks % 5)) {
                    (0..4).for_each(|child| self.stream(group, child, word, u8::MAX));
                }
            }
            Step::Withdraw { group, epoch } => {
                let group = GroupId(u32::from(group) % GROUPS);
                self.node.withdraw(group, Epoch(u32::from(epoch % 2)));
            }
            Step::Frame { is_datagram, port, ref edge, ref message } => {
                self.frame(port, edge, message, carrier(is_datagram));
            }
            Step::PortClosed { port } => self.close(PortId(u32::from(port) % PORTS)),
            Step::Advance { ns } => self.advance(u64::from(ns)),
            Step::Drain { port, frames } => {
                self.drain(PortId(u32::from(port) % PORTS), usize::from(frames));
            }
            Step::HonestSum { left, right, is_reversed } => {
                self.honest_sum(left, right, is_reversed);
            }
        }
        self.drain_events();
    }

    fn advance(&mut self, ns: u64) {
        self.now = self.now.after_ns(ns);
        if self.node.poll_timeout().is_some_and(|due| due <= self.now) {
            self.node.handle_timeout(self.now);
        }
        assert!(self.node.poll_timeout().is_none_or(|due| due > self.now));
    }

    fn form(&mut self, group: u8, osos: u8, count: u8, is_below: bool) {
        let group = GroupId(u32::from(group) % GROUPS);
        let count = 1 + u16::from(count % 4);
        self.install(GroupConfig {
            group,
            epoch: Epoch(0),
            frame_version: Versions::SPOKEN.newest,
            osos: 1 + u16::from(osos % 4),
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            children: children(group, count),
            parent: is_below.then(|| ParentConfig {
                name: "one".into(),
                port: upward(group),
                child: ChildIndex(0),
                capability: edges(group).capability(0),
            }),
            stream: Some(StreamConfig { tree: TreeId(0), terms: TERMS }),
        });
        for child in 0..count {
            self.say(group, child, Message::Join, Carrier::Link);
            self.sent.insert((group, child), 0);
            self.streamed.insert((group, child), (FIRST_STREAM, 0));
        }
        if is_below {
            self.node.offer_datagrams(group);
            self.say_down(group, Message::Datagrams(Some(DATAGRAM_PORT)), Carrier::Link);
            self.say_down(group, Message::Probed(0), Carrier::Datagram);
        }
    }

    fn request(
        &mut self,
        group: u8,
        child: u8,
        skip: u8,
        elements: u8,
        retransmit: RetransmitState,
        carrier: Carrier,
    ) {
        let group = GroupId(u32::from(group) % GROUPS);
        let child = u16::from(child % 4);
        let Some(sent) = self.sent.get_mut(&(group, child)) else { return };
        let number = match skip {
            0..48 => sent.wrapping_sub(1),
            48..50 => *sent + 1,
            _ => *sent,
        };
        *sent += u32::from(number == *sent);
        let part = AnyPart {
            number: 0,
            is_far: false,
            operator: 0,
            elements: if elements < 8 { elements } else { 4 },
            member: None,
            has_data: true,
            attempt: 0,
            behind: 0,
        };
        let part = Part {
            operation: OperationNumber(number),
            sequence: sequence(number),
            retransmit,
            ..part.part(true)
        };
        self.say(group, child, Message::Request(part), carrier);
    }

    fn stream(&mut self, group: u8, child: u8, word: u8, skip: u8) {
        let group = GroupId(u32::from(group) % GROUPS);
        let child = u16::from(child % 4);
        let Some((done, sent)) = self.streamed.get_mut(&(group, child)) else { return };
        let operation = OperationNumber(match skip {
            0..4 => done.wrapping_sub(1),
            4..6 => *done + 1,
            _ => *done,
        });
        let message = match word % 4 {
            0 => Message::StreamRequest(StreamRequest {
                operation,
                shape: stream_shape(20 + u64::from(skip == 6)),
                target: Target::All,
            }),
            1 | 2 => {
                let chunk = if skip == 7 { *sent + 1 } else { *sent };
                *sent += 1;
                Message::Chunk(chunk_of(operation, chunk % 4))
            }
            _ => {
                *done += u32::from(operation.0 == *done);
                *sent = 0;
                Message::StreamDone(operation)
            }
        };
        self.say(group, child, message, Carrier::Link);
    }

    /// Sends over the port of a child that [`Step::Form`] joined, valid or not.
    fn say(&mut self, group: GroupId, child: u16, message: Message, carrier: Carrier) {
        let edge = edges(group).edge(child);
        let port = PortId(group.0 * 4 + u32::from(child));
        self.put(port, Header { edge, message }, carrier);
        self.drain_events();
    }

    /// Sends over the port of a parent that [`Step::Form`] connected, valid or not.
    fn say_down(&mut self, group: GroupId, message: Message, carrier: Carrier) {
        let edge = edges(group).edge(0);
        self.put(upward(group), Header { edge, message }, carrier);
        self.drain_events();
    }

    fn frame(&mut self, port: u8, edge: &AnyEdge, message: &AnyMessage, carrier: Carrier) {
        // A frame may name the honest group, but never its capabilities.
        let group = GroupId(u32::from(edge.group) % (GROUPS + 2));
        let child = ChildIndex(u16::from(edge.child % 5));
        let capability = if edge.is_forged || group == HONEST {
            Capability::from_bytes([edge.child; 16])
        } else {
            edges(group).capability(child.0)
        };
        let epoch = Epoch(u32::from(edge.epoch % 2));
        let version = Versions::SPOKEN.newest;
        let edge = Edge { group, epoch, child, capability, version };
        let header = Header { edge, message: message.message() };
        if group == HONEST {
            assert_eq!(self.node.port_of_datagram(&header), None, "its capability is wrong");
        }
        self.put(PortId(u32::from(port) % PORTS), header, carrier);
    }

    fn put(&mut self, port: PortId, header: Header, carrier: Carrier) {
        let payload = vec![0xCC; header.payload_bytes()];
        if self.handle(port, carrier, &header, &payload).is_err() {
            self.reached.refused += 1;
            // A datagram that is refused is dropped, and nothing else happens.
            if carrier == Carrier::Link {
                self.close(port);
            }
        }
    }

    fn handle(
        &mut self,
        port: PortId,
        carrier: Carrier,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), FrameError> {
        self.memory.expect(header);
        self.node.handle_frame(self.now, port, carrier, header, payload, &mut self.memory)
    }

    fn close(&mut self, port: PortId) {
        self.node.handle_port_closed(port);
        assert_eq!(self.node.peek_transmit(port), None);
    }

    fn drain(&mut self, port: PortId, frames: usize) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        for _ in 0..frames {
            let Some(transmit) = self.node.peek_transmit(port) else { break };
            assert_eq!(transmit.body.is_some(), transmit.header.payload_bytes() > 0);
            if let Some(at) = transmit.body {
                let mut body = Vec::new();
                self.memory.append(at, transmit.header.payload_bytes(), &mut body);
                bodies.push(body);
            }
            self.node.pop_transmit(port);
        }
        bodies
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Released(arena) => {
                    self.memory.release(arena);
                    self.osos.remove(&arena);
                }
                Event::Close(port) => self.close(port),
                Event::Failed { group, .. } | Event::Ended { group, .. } => {
                    assert_ne!(group, HONEST, "the honest group stands");
                }
                Event::Formed { .. }
                | Event::DatagramPeer { .. }
                | Event::Datagrams { .. }
                | Event::Multicast { .. } => {}
            }
        }
    }

    /// Both members of the honest group send one number each, and get the sum.
    fn honest_sum(&mut self, left: u32, right: u32, is_reversed: bool) {
        let number = self.honest_number;
        self.honest_number += 1;
        let shape = Shape::new(Operator::Sum, Datatype::U32, 1).expect("a sum of one number");
        let part = part(OperationNumber(number), sequence(number), shape);
        let order = if is_reversed { [1, 0] } else { [0, 1] };
        for child in order {
            let header =
                Header { edge: edges(HONEST).edge(child as u16), message: Message::Request(part) };
            let payload = [left, right][child].to_le_bytes();
            self.handle(HONEST_PORTS[child], Carrier::Link, &header, &payload).expect("honest");
        }
        for port in HONEST_PORTS {
            let bodies = self.drain(port, usize::MAX);
            assert_eq!(bodies, [left.wrapping_add(right).to_le_bytes()]);
        }
        self.reached.honest_sums += 1;
    }

    /// Both members of the honest group stream three numbers each, one a chunk, and get the sums.
    fn honest_stream(&mut self) {
        let operation = OperationNumber(FIRST_STREAM);
        let shape = StreamShape::new(Operator::Sum, Datatype::U32, 6).expect("six numbers");
        let request = StreamRequest { operation, shape, target: Target::All };
        let say = |run: &mut Self, child: usize, message, payload: &[u8]| {
            let header = Header { edge: edges(HONEST).edge(child as u16), message };
            run.handle(HONEST_PORTS[child], Carrier::Link, &header, payload)
        };
        for child in 0..2 {
            say(self, child, Message::StreamRequest(request), &[]).expect("honest");
        }
        for port in HONEST_PORTS {
            self.drain(port, usize::MAX);
        }
        for chunk in 0..3 {
            let shape = Shape::new(Operator::Sum, Datatype::U32, 2).expect("two numbers");
            let segment = SegmentIndex(2 - chunk);
            let part = Part { segment, ..part(operation, sequence(chunk), shape) };
            for child in 0..2 {
                say(self, child, Message::Chunk(part), &[child as u8; 8]).expect("granted");
            }
            for port in HONEST_PORTS {
                assert_eq!(self.drain(port, usize::MAX).len(), 1, "chunk {chunk} is complete");
            }
        }
        for child in 0..2 {
            say(self, child, Message::StreamDone(operation), &[]).expect("honest");
        }
    }

    fn check(&mut self) {
        while self.node.poll_ready().is_some() {}
        self.drain_events();
        let osos: u32 = self.osos.values().sum();
        assert_eq!(self.node.osos_used(), osos, "the sum over what is installed");
        assert!(osos <= OSOS_MAX);
        for port in (0..PORTS).map(PortId).chain(HONEST_PORTS) {
            assert!(self.node.queued_frames(port) <= QUEUE_MAX);
        }
    }
}
