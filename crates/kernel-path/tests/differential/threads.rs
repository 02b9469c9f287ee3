//! Goal: on several cores, program and process together lose nothing and count nothing twice. Method: every member
//! is a thread that runs the program over its own packets, as a core does in its soft interrupt, and the process is
//! one more; each yields at random between its accesses to what they share. Packets are lost and repeated, segments
//! are of all types and lengths, and the group leaves the program and comes back. Every result is compared with the
//! contributions' fold in child order, and every member gets every result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_kernel_path::user_space::packets::{Checksum, HEAD_BYTES, packet};
use tributary_kernel_path::user_space::{UserSpace, Verdict, follow};
use tributary_kernel_path::{AdmitError, Arrival, Counters, Handover};
use tributary_protocol::node::{Node, PortId};
use tributary_protocol::{Carrier, Time};
use tributary_protocol_testing::NodeMemory;
use tributary_protocol_testing::frames::{decode, encode, part, sequence};
use tributary_wire::frame::{Header, Message, Shape};
use tributary_wire::{OperationNumber, Operator};

use crate::handover::{PAYLOAD_MAX_BYTES, any_shape, contribution, expected, path};
use crate::root::{GROUP, assert_lives, edge, root, sent_by};

const RUNS: u64 = 12;
const SEGMENTS: u32 = 300;
/// A run takes a second. What hangs fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// What reaches the process.
type Upward = (usize, Carrier, Vec<u8>);

/// The path to everybody.
#[derive(Clone)]
struct Network {
    process: Sender<Upward>,
    members: Vec<Sender<Vec<u8>>>,
}

impl Network {
    /// To the member that the frame names. One that has all results is gone.
    fn down(&self, frame: Vec<u8>) {
        let child = usize::from(u16::from_le_bytes([frame[44], frame[45]]));
        let _ = self.members[child].send(frame);
    }
}

fn shape_of(seed: u64, number: u32) -> Shape {
    any_shape(&mut Pcg64::seed_from_u64(seed << 32 | u64::from(number)))
}

struct Member<'a> {
    seed: u64,
    child: usize,
    children: usize,
    window: u32,
    random: Pcg64,
    program: &'a UserSpace,
    network: Network,
    frames: Receiver<Vec<u8>>,
    sent: u32,
    attempts: BTreeMap<u32, u8>,
    results: BTreeSet<u32>,
    /// The first segment whose result has not come.
    complete: u32,
}

impl Member<'_> {
    fn run(mut self) {
        let mut random = Pcg64::seed_from_u64(self.seed << 8 | self.child as u64);
        follow(move |_| {
            if random.random_bool(0.2) {
                thread::yield_now();
            }
        });
        let started = Instant::now();
        while self.complete < SEGMENTS {
            assert!(started.elapsed() < PATIENCE, "seed {}: no progress", self.seed);
            self.send_any();
            while let Ok(frame) = self.frames.try_recv() {
                self.receive(&frame);
            }
            thread::yield_now();
        }
    }

    fn send_any(&mut self) {
        let may_send = self.sent < SEGMENTS && self.sent < self.complete + self.window;
        let waiting: Vec<_> =
            (self.complete..self.sent).filter(|it| !self.results.contains(it)).collect();
        match waiting.choose(&mut self.random) {
            Some(waiting) if !may_send || self.random.random_bool(0.2) => self.send(*waiting),
            _ if may_send => {
                self.sent += 1;
                self.send(self.sent - 1);
            }
            _ => {}
        }
    }

    fn send(&mut self, number: u32) {
        let shape = shape_of(self.seed, number);
        let mut part = part(OperationNumber(number), sequence(number), shape);
        part.has_data = shape.operator() != Operator::Barrier;
        let attempt = self.attempts.entry(number).or_default();
        part.retransmit.attempt = *attempt;
        *attempt = attempt.saturating_add(1);
        let header = Header { edge: edge(self.child), message: Message::Request(part) };
        let frame = encode(&header, &contribution(self.child, number, &shape));
        if self.random.random_bool(0.02) {
            self.up(Carrier::Link, frame);
        } else if self.random.random_bool(0.9) {
            let ends = path(PortId(self.child as u32));
            let checksum =
                if self.random.random_bool(0.5) { Checksum::Full } else { Checksum::None };
            let bytes = packet(ends.peer, ends.own, [self.child as u8; 12], checksum, &frame);
            let (verdict, sent) = self.program.run(1, &bytes, false);
            for sent in sent {
                if self.random.random_bool(0.9) {
                    self.network.down(sent.bytes[HEAD_BYTES..].to_vec());
                }
            }
            if verdict == Verdict::Pass {
                self.up(Carrier::Datagram, frame);
            }
        }
    }

    fn up(&self, carrier: Carrier, frame: Vec<u8>) {
        self.network.process.send((self.child, carrier, frame)).expect("the process serves all");
    }

    fn receive(&mut self, frame: &[u8]) {
        let (header, payload) = decode(frame).expect("the node sends frames");
        let Message::Result(part) = header.message else { return };
        let number = part.sequence.distance_from(sequence(0));
        assert!(number < self.sent, "seed {}: nobody asked for {number}", self.seed);
        if !self.results.insert(number) {
            // A repeat, which endpoints do not look into: its slot may have moved on since it was queued.
            return;
        }
        let shape = shape_of(self.seed, number);
        if shape.operator() != Operator::Barrier {
            let place =
                format!("seed {}, segment {number} at {}: {shape:?}", self.seed, self.child);
            assert_eq!(payload, expected(shape, number, self.children), "{place}");
        }
        while self.results.contains(&self.complete) {
            self.complete += 1;
        }
    }
}

struct Process {
    seed: u64,
    started: Instant,
    random: Pcg64,
    handover: Handover,
    node: Node,
    memory: NodeMemory,
    network: Vec<Sender<Vec<u8>>>,
}

impl Process {
    fn now(&self) -> Time {
        Time(self.started.elapsed().as_nanos() as u64)
    }

    /// Serves until all members are gone.
    fn run(mut self, frames: &Receiver<Upward>) -> Counters {
        loop {
            match frames.recv_timeout(Duration::from_millis(1)) {
                Ok((child, carrier, frame)) => {
                    let (header, payload) = decode(&frame).expect("members send frames");
                    self.hand(child, carrier, &header, payload);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.handover.counters(),
            }
            let now = self.now();
            match self.random.random_range(0..400) {
                0 => self.handover.end(&mut self.node, GROUP, now, &mut self.memory),
                1..40 => self.admit(),
                _ => {}
            }
            self.drain();
        }
    }

    fn admit(&mut self) {
        let (now, path) = (self.now(), |port| Some(path(port)));
        match self.handover.admit(now, &self.node, GROUP, None, path) {
            // Every place has to rest for a second.
            Ok(_) | Err(AdmitError::Full) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn hand(&mut self, child: usize, carrier: Carrier, header: &Header, payload: &[u8]) {
        let port = PortId(child as u32);
        let arrival = Arrival { now: self.now(), port, carrier, header, payload };
        self.handover.handle_frame(&mut self.node, arrival, &mut self.memory).unwrap_or_else(
            |error| panic!("seed {}, child {child}: {header:?}: {error}", self.seed),
        );
    }

    fn drain(&mut self) {
        for (port, carrier, frame) in sent_by(&mut self.node, &self.memory) {
            if carrier == Carrier::Link || self.random.random_bool(0.9) {
                // A member that has all results is gone.
                let _ = self.network[port.0 as usize].send(frame);
            }
        }
        assert_lives(&mut self.node, self.seed);
    }
}

fn run(seed: u64) -> Counters {
    let mut random = Pcg64::seed_from_u64(seed);
    let children = random.random_range(2..=6);
    let window = random.random_range(1..=16);
    let (program, tables) = UserSpace::new();
    let (node, memory) = root(children, window, PAYLOAD_MAX_BYTES);
    let (process_sender, process_frames) = channel();
    let (members, receivers): (Vec<_>, Vec<_>) = (0..children).map(|_| channel()).unzip();
    let network = Network { process: process_sender, members };
    let mut process = Process {
        seed,
        started: Instant::now(),
        random,
        handover: Handover::new(tables),
        node,
        memory,
        network: network.members.clone(),
    };
    for child in 0..children {
        let join = Header { edge: edge(child), message: Message::Join };
        process.hand(child, Carrier::Link, &join, &[]);
    }
    process.admit();
    thread::scope(|scope| {
        for (child, frames) in receivers.into_iter().enumerate() {
            let member = Member {
                seed,
                child,
                children,
                window: u32::from(window),
                random: Pcg64::seed_from_u64(seed << 16 | child as u64),
                program: &program,
                network: network.clone(),
                frames,
                sent: 0,
                attempts: BTreeMap::new(),
                results: BTreeSet::new(),
                complete: 0,
            };
            scope.spawn(|| member.run());
        }
        drop(network);
        scope.spawn(move || process.run(&process_frames)).join().expect("the process serves all")
    })
}

#[test]
fn cores_and_process_lose_nothing() {
    let mut seen = Counters::default();
    for seed in 0..RUNS {
        let counters = run(seed);
        seen.taken += counters.taken;
        seen.completed += counters.completed;
        seen.gathered += counters.gathered;
        seen.repeats += counters.repeats;
        seen.passed += counters.passed;
    }
    let segments = RUNS * u64::from(SEGMENTS);
    println!("{segments} segments; {seen:?}");
    assert!(seen.completed > segments / 20 && seen.gathered > segments / 100, "{seen:?}");
    assert!(seen.repeats > 0 && seen.passed > 0, "{seen:?}");
}
