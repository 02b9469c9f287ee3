//! Goal: program and process together lose nothing and count nothing twice. Method: honest members over a network that
//! loses, repeats and reorders, whose segments are of all types, lengths and carriers, so that each sequence is the
//! program's, the process's, or taken over half-way; groups leave the program and come back at random. Every other
//! group is that of an aggregator below another, which gets and answers what is sent to it, over the same network.
//! Every result is compared with the contributions' fold in child order, and every member gets every result.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_kernel_path::user_space::packets::{Checksum, HEAD_BYTES, packet, parse};
use tributary_kernel_path::user_space::{SentPacket, UserSpace, Verdict};
use tributary_kernel_path::{Arrival, Counters, DatagramPath, Handover};
use tributary_protocol::node::{Node, PortId};
use tributary_protocol::{Carrier, Time};
use tributary_protocol_testing::NodeMemory;
use tributary_protocol_testing::frames::{decode, encode, part, sequence};
use tributary_reduce::oracle;
use tributary_wire::frame::{EVERYONE, Header, Message, Part, Shape, Subscription};
use tributary_wire::{Datatype, OperationNumber, Operator};

use crate::parent::{parent_config, parent_edge};
use crate::root::{
    GROUP, MULTICAST, assert_lives, capability, edge, inner, multicast_by, multicast_capability,
    root, sent_by,
};

const RUNS: u64 = 100;
const SEGMENTS: u32 = 60;
pub(crate) const PAYLOAD_MAX_BYTES: u32 = 1400;

#[test]
fn every_member_gets_every_result() {
    let mut seen = Counters::default();
    let (mut results, mut forwarded, mut forwarded_in_program) = (0, 0, 0);
    for seed in 0..RUNS {
        let mut world = World::new(seed);
        world.run();
        let counters = world.handover.counters();
        seen.completed += counters.completed;
        seen.gathered += counters.gathered;
        seen.passed += counters.passed;
        seen.taken += counters.taken;
        seen.multicasts += counters.multicasts;
        forwarded += world.parent.requests.len() as u64;
        forwarded_in_program += world.parent.from_program;
        results += u64::from(SEGMENTS);
    }
    println!("{results} segments, {} completed by the program; {seen:?}", seen.completed);
    assert!(seen.completed > results / 10 && seen.completed < results * 9 / 10, "{seen:?}");
    assert!(seen.gathered > results / 50 && seen.passed > RUNS, "{seen:?}");
    assert!(seen.multicasts > results / 40, "{seen:?}");
    println!("{forwarded} to a parent, {forwarded_in_program} of them by the program");
    assert_eq!(forwarded, results / 2);
    assert!(forwarded_in_program > forwarded / 20, "{forwarded_in_program}");
}

struct World {
    seed: u64,
    random: Pcg64,
    program: UserSpace,
    handover: Handover,
    node: Node,
    memory: NodeMemory,
    now: Time,
    members: Vec<Member>,
    window: u32,
    shapes: BTreeMap<u32, Shape>,
    loses: bool,
    is_root: bool,
    /// Longest result that goes by multicast, if any does.
    multicast_max_bytes: Option<u32>,
    parent: Parent,
}

/// The aggregator above.
#[derive(Default)]
struct Parent {
    /// The segments that it has got.
    requests: BTreeSet<u32>,
    /// Of how many of them the program sent the first request that came.
    from_program: u64,
}

#[derive(Default)]
struct Member {
    sent: u32,
    attempts: BTreeMap<u32, u8>,
    results: BTreeSet<u32>,
    /// Whether multicast reaches it.
    is_reached: bool,
}

impl Member {
    /// The first segment whose result has not come.
    fn complete(&self) -> u32 {
        (0..).find(|number| !self.results.contains(number)).expect("results are finite")
    }
}

pub(crate) fn path(port: PortId) -> DatagramPath {
    let peer = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, port.0 as u8 + 1), 4000);
    DatagramPath { peer, own: SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 1), 7471) }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let children = random.random_range(1..=8);
        let window = random.random_range(1..=16);
        let (program, tables) = UserSpace::new();
        let is_root = seed.is_multiple_of(2);
        let make = if is_root { root } else { inner };
        let (mut node, memory) = make(children, window, PAYLOAD_MAX_BYTES);
        let multicast_max_bytes =
            random.random_bool(0.5).then(|| random.random_range(0..=PAYLOAD_MAX_BYTES));
        if let Some(longest_bytes) = multicast_max_bytes {
            node.use_multicast(GROUP, multicast_capability(), longest_bytes);
        }
        let mut world = Self {
            seed,
            random,
            program,
            handover: Handover::new(tables),
            node,
            memory,
            now: Time(0),
            members: (0..children).map(|_| Member::default()).collect(),
            window: u32::from(window),
            shapes: BTreeMap::new(),
            loses: true,
            is_root,
            multicast_max_bytes,
            parent: Parent::default(),
        };
        for child in 0..children {
            world.hand(child, Carrier::Link, Message::Join, &[]);
        }
        world
    }

    fn run(&mut self) {
        let mut steps = 0;
        while self.members.iter().any(|member| member.complete() < SEGMENTS) {
            steps += 1;
            self.loses = steps < 3000;
            assert!(steps < 30_000, "seed {}: no progress", self.seed);
            self.now = self.now.after_ns(20_000);
            match self.random.random_range(0..60) {
                0 => self.handover.end(&mut self.node, GROUP, self.now, &mut self.memory),
                1..4 => self.admit(),
                4 => self.subscribe(),
                5..15 if !self.is_root => self.step_of_parent(),
                _ => self.step(),
            }
            if self.node.poll_timeout().is_some_and(|due| due <= self.now) {
                self.node.handle_timeout(self.now);
            }
            self.drain();
        }
    }

    /// The parent sends the result of a segment, again perhaps, or asks for one that it has not.
    fn step_of_parent(&mut self) {
        let sent = self.members.iter().map(|member| member.sent).min().unwrap_or_default();
        let number = self.random.random_range(0..=sent);
        let sequence = sequence(number);
        if !self.parent.requests.contains(&number) {
            return self.deliver_from_parent(Message::Nack { sequence }, &[]);
        }
        if self.random.random_bool(0.2) {
            return self.deliver_from_parent(Message::Ack { sequence, attempt: 0 }, &[]);
        }
        let recent = self.members.iter().map(Member::complete).min().unwrap_or_default();
        let number = if self.random.random_bool(0.5) { number } else { recent };
        self.answer(number, Carrier::Datagram);
    }

    fn answer(&mut self, number: u32, carrier: Carrier) {
        if self.parent.requests.contains(&number) {
            let shape = self.shapes[&number];
            let part = self.part(number);
            let result = self.result(number, &shape);
            if self.multicast_max_bytes.is_some_and(|longest| result.len() <= longest as usize) {
                self.receive_multicast(Message::Result(part), &result);
            }
            match carrier {
                Carrier::Link => self.hand_from_parent(carrier, Message::Result(part), &result),
                _ => self.deliver_from_parent(Message::Result(part), &result),
            }
        }
    }

    /// What all members get: of those below the aggregator alone, or of others as well.
    fn result(&self, number: u32, shape: &Shape) -> Vec<u8> {
        let others = if self.is_root { 0 } else { 1 };
        expected(*shape, number, self.members.len() + others)
    }

    fn part(&self, number: u32) -> Part {
        let shape = self.shapes[&number];
        let mut part = part(OperationNumber(number), sequence(number), shape);
        part.has_data = shape.operator() != Operator::Barrier;
        part
    }

    /// A datagram from the parent, if it is not lost, meets the program first.
    fn deliver_from_parent(&mut self, message: Message, payload: &[u8]) {
        if self.loses && self.random.random_bool(0.15) {
            return;
        }
        let header = Header { edge: parent_edge(), message };
        let DatagramPath { peer, own } = path(parent_config().port);
        let frame = encode(&header, payload);
        let bytes = packet(peer, own, [99; 12], Checksum::Full, &frame);
        // What comes in a train with others passes by the program.
        let is_in_train = self.random.random_bool(0.2);
        let (verdict, sent) = match is_in_train {
            true => (Verdict::Pass, Vec::new()),
            false => self.program.run(1, &bytes, false),
        };
        for sent in sent {
            self.receive_from_program(&sent);
        }
        if verdict == Verdict::Pass {
            self.hand_from_parent(Carrier::Datagram, message, payload);
        }
    }

    fn hand_from_parent(&mut self, carrier: Carrier, message: Message, payload: &[u8]) {
        let header = Header { edge: parent_edge(), message };
        let (now, port) = (self.now, parent_config().port);
        let arrival = Arrival { now, port, carrier, header: &header, payload };
        let handed = self.handover.handle_frame(&mut self.node, arrival, &mut self.memory);
        assert!(handed.is_ok(), "seed {}: {handed:?}", self.seed);
    }

    fn receive_from_program(&mut self, sent: &SentPacket) {
        let frame = &sent.bytes[HEAD_BYTES..];
        if parse(&sent.bytes).to == path(parent_config().port).peer {
            self.receive_at_parent(frame, Carrier::Datagram, true);
        } else {
            self.receive(frame, Carrier::Datagram);
        }
    }

    /// A frame comes to the parent, if it is not lost. It answers at once, or later.
    fn receive_at_parent(&mut self, frame: &[u8], carrier: Carrier, is_from_program: bool) {
        let (header, payload) = decode(frame).expect("the node sends frames");
        assert_eq!(header.edge, parent_edge());
        let Message::Request(part) = header.message else { return };
        if carrier == Carrier::Datagram && self.loses && self.random.random_bool(0.15) {
            return;
        }
        let number = part.sequence.distance_from(sequence(0));
        let shape = self.shapes[&number];
        let place = format!("seed {}, segment {number} to the parent: {shape:?}", self.seed);
        assert_eq!(part.shape, shape, "{place}");
        if self.parent.requests.insert(number) {
            // Nobody looks into a repeat, in whose place the result may be by now.
            if shape.operator() != Operator::Barrier {
                assert_eq!(payload, expected(shape, number, self.members.len()), "{place}");
            }
            self.parent.from_program += u64::from(is_from_program);
        }
        if carrier == Carrier::Link || self.random.random_bool(0.7) {
            self.answer(number, carrier);
        }
    }

    fn admit(&mut self) {
        self.now = self.now.after_ns(2_000_000_000);
        self.handover
            .admit(self.now, &self.node, GROUP, Some(MULTICAST), |port| Some(path(port)))
            .expect("a rested place is free");
    }

    /// A member is reached by multicast or not any more, and the aggregator may hear of it.
    fn subscribe(&mut self) {
        let child = self.random.random_range(0..self.members.len());
        self.members[child].is_reached = self.random.random_bool(0.7);
        if self.random.random_bool(0.8) {
            let subscription = match self.members[child].is_reached {
                true => Subscription::Here,
                false => Subscription::Nobody,
            };
            self.hand(child, Carrier::Link, Message::Subscribed(subscription), &[]);
        }
    }

    /// A member sends its next segment, or one again that is not answered.
    fn step(&mut self) {
        let child = self.random.random_range(0..self.members.len());
        let member = &self.members[child];
        let next = member.sent;
        let may_send = next < SEGMENTS && next < member.complete() + self.window;
        let waiting: Vec<_> =
            (member.complete()..next).filter(|it| !member.results.contains(it)).collect();
        let number = match waiting.choose(&mut self.random) {
            Some(waiting) if !may_send || self.random.random_bool(0.3) => *waiting,
            _ if may_send => next,
            _ => return,
        };
        self.members[child].sent = next.max(number + 1);
        let shape = *self.shapes.entry(number).or_insert_with(|| any_shape(&mut self.random));
        let mut part = self.part(number);
        let attempt = self.members[child].attempts.entry(number).or_default();
        part.retransmit.attempt = *attempt;
        *attempt = attempt.saturating_add(1);
        let carrier = if self.random.random_bool(0.1) { Carrier::Link } else { Carrier::Datagram };
        if carrier == Carrier::Datagram && self.loses && self.random.random_bool(0.15) {
            return;
        }
        let payload = contribution(child, number, &shape);
        self.deliver(child, carrier, Message::Request(part), &payload);
    }

    /// Delivers a frame to the aggregator: a datagram meets the program first.
    fn deliver(&mut self, child: usize, carrier: Carrier, message: Message, payload: &[u8]) {
        if carrier == Carrier::Datagram {
            let header = Header { edge: edge(child), message };
            let DatagramPath { peer, own } = path(PortId(child as u32));
            let frame = encode(&header, payload);
            let bytes = packet(peer, own, [child as u8; 12], Checksum::Full, &frame);
            let (verdict, sent) = self.program.run(1, &bytes, false);
            for sent in sent {
                self.receive_from_program(&sent);
            }
            if verdict != Verdict::Pass {
                return;
            }
        }
        self.hand(child, carrier, message, payload);
    }

    fn hand(&mut self, child: usize, carrier: Carrier, message: Message, payload: &[u8]) {
        let header = Header { edge: edge(child), message };
        let port = PortId(child as u32);
        let arrival = Arrival { now: self.now, port, carrier, header: &header, payload };
        self.handover.handle_frame(&mut self.node, arrival, &mut self.memory).unwrap_or_else(
            |error| panic!("seed {}, child {child}: {message:?}: {error}", self.seed),
        );
    }

    fn drain(&mut self) {
        for frame in multicast_by(&mut self.node, &self.memory) {
            self.receive(&frame, Carrier::Multicast);
        }
        for (port, carrier, frame) in sent_by(&mut self.node, &self.memory) {
            if port == parent_config().port {
                self.receive_at_parent(&frame, carrier, false);
            } else {
                self.receive(&frame, carrier);
            }
        }
        assert_lives(&mut self.node, self.seed);
    }

    /// A frame comes to a member, if it is not lost.
    fn receive(&mut self, frame: &[u8], carrier: Carrier) {
        let (header, payload) = decode(frame).expect("the node sends frames");
        if header.edge.child == EVERYONE {
            assert_eq!(header.edge.capability, multicast_capability());
            assert!(self.is_root);
            self.receive_multicast(header.message, payload);
            return;
        }
        let child = usize::from(header.edge.child.0);
        assert_eq!(header.edge.capability, capability(child));
        self.receive_at(child, header.message, payload, carrier);
    }

    fn receive_multicast(&mut self, message: Message, payload: &[u8]) {
        for child in 0..self.members.len() {
            if self.members[child].is_reached {
                self.receive_at(child, message, payload, Carrier::Multicast);
            }
        }
    }

    fn receive_at(&mut self, child: usize, message: Message, payload: &[u8], carrier: Carrier) {
        let Message::Result(part) = message else { return };
        let number = part.sequence.distance_from(sequence(0));
        if carrier != Carrier::Link && self.loses && self.random.random_bool(0.15) {
            return;
        }
        let place = format!("seed {}, segment {number} at {child}: {:?}", self.seed, part.shape);
        let member = &self.members[child];
        assert!(number < member.sent, "{place}: nobody asked for it");
        if part.shape.operator() != Operator::Barrier {
            assert_eq!(payload, self.result(number, &self.shapes[&number]), "{place}");
        }
        self.members[child].results.insert(number);
    }
}

/// Any segment: of every operator and type that combines, short and long, and barriers.
pub(crate) fn any_shape(random: &mut impl Rng) -> Shape {
    loop {
        let operator = *Operator::ALL.choose(random).expect("there are operators");
        let datatype = *Datatype::ALL.choose(random).expect("there are types");
        if operator == Operator::Barrier {
            return Shape::BARRIER;
        }
        let most = PAYLOAD_MAX_BYTES as usize / datatype.size_bytes();
        let elements = if random.random_bool(0.8) { 1 } else { random.random_range(1..=most) };
        if operator.is_reduction()
            && let Ok(shape) = Shape::new(operator, datatype, elements as u32)
        {
            return shape;
        }
    }
}

/// What a member contributes: small numbers, so that no float is a NaN.
pub(crate) fn contribution(child: usize, number: u32, shape: &Shape) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(u64::from(number) << 8 | child as u64);
    (0..shape.bytes()).map(|_| random.random_range(0..0x20)).collect()
}

pub(crate) fn expected(shape: Shape, number: u32, children: usize) -> Vec<u8> {
    let contributions: Vec<_> =
        (0..children).map(|child| contribution(child, number, &shape)).collect();
    let contributions: Vec<_> = contributions.iter().map(Vec::as_slice).collect();
    oracle::accumulate(shape.operator(), shape.datatype(), &contributions)
}
