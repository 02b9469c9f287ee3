//! Any packets at the kernel path's program, compiled for user space, and between them all that its process does:
//! groups come, leave the program and come back, members speak over their links, leave and vanish. After every packet
//! the program's accounts are right; after every step each slot's word is one that both sides understand, and the
//! window is kept. Groups may be below another aggregator, whose packets may be any, too. Honest groups beside the
//! attacked ones, at their root and below an honest parent, get their sums.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU16;
use std::ops::Add;

use arbitrary::{Arbitrary, Unstructured};
use tributary_kernel_path::user_space::packets::{Checksum, HEAD_BYTES, packet, parse};
use tributary_kernel_path::user_space::{SentPacket, Served, UserSpace, Verdict};
use tributary_kernel_path::{Arrival, Counters, DatagramPath, Handover, Phase, Word};
use tributary_protocol::node::{
    Event, GroupConfig, Node, NodeConfig, ParentConfig, PortId, StreamLimits,
};
use tributary_protocol::{Carrier, Time};
use tributary_protocol_testing::frames::{decode, encode, part, sequence};
use tributary_protocol_testing::{NodeEdges, NodeMemory};
use tributary_wire::frame::{EVERYONE, Header, Message, Part, Shape, Subscription, Versions};
use tributary_wire::{
    Capability, ChildIndex, Datatype, Epoch, GroupId, OperationNumber, Operator, Sequence,
};

const STEPS_MAX: usize = 150;
const GROUPS: u32 = 3;
/// The honest groups, behind all that a step names: at its root, and below another aggregator.
const HONEST: GroupId = GroupId(GROUPS);
const HONEST_BELOW: GroupId = GroupId(GROUPS + 1);
const CHILDREN_MAX: u16 = 5;
/// The number of the edge to the parent, behind those of children.
const PARENT: u16 = CHILDREN_MAX;
const WINDOW_MAX: u16 = 6;
const PAYLOAD_MAX_BYTES: u32 = 1100;
const TIMEOUT_NS: u64 = 1000;
const DATAGRAM_PORT: NonZeroU16 = NonZeroU16::new(7471).expect("it is not zero");
/// Where results of a group with multicast go.
const MULTICAST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 1), 7475);
/// The longest of them.
const MULTICAST_MAX_BYTES: u32 = 512;
/// Longer than a place in the tables rests.
const REST_NS: u64 = 2_000_000_000;

#[derive(Debug, Arbitrary)]
enum Step {
    /// Installs a group, joins all its children over links, and lets the program serve it.
    Form {
        group: u8,
        children: u8,
        window: u8,
        is_multicast: bool,
        is_below: bool,
    },
    /// A child says who receives multicast.
    Subscribe {
        group: u8,
        child: u8,
        what: u8,
    },
    /// Lets the program serve a group that it does not serve.
    Admit {
        group: u8,
        is_rested: bool,
    },
    /// Ends the program's service to a group that goes on.
    End {
        group: u8,
    },
    /// The next request of a child, or one near it, by packet or link; some bits of the packet are others.
    Request {
        group: u8,
        child: u8,
        skip: u8,
        shape: u8,
        attempt: u8,
        by: u8,
        flips: [Option<Flip>; 2],
    },
    /// The parent sends a result, an ack or a nack of a segment, or of one near it, by packet or link.
    Parent {
        group: u8,
        back: u8,
        shape: u8,
        what: u8,
        by: u8,
        flips: [Option<Flip>; 2],
    },
    /// All children send their next segments, each so many.
    Round {
        group: u8,
        segments: u8,
    },
    /// Any bytes from a child to the aggregator's socket, behind the beginning of a good frame.
    Bytes {
        group: u8,
        child: u8,
        kept: u8,
        bytes: Vec<u8>,
        has_checksum: bool,
    },
    /// Any packet, behind the beginning of a good one.
    Packet {
        group: u8,
        child: u8,
        kept: u8,
        bytes: Vec<u8>,
    },
    /// A child leaves or its link is lost, or the group is withdrawn.
    Lose {
        group: u8,
        child: u8,
        how: u8,
    },
    HonestSum {
        left: u32,
        right: u32,
    },
}

/// A bit of a packet to be flipped.
#[derive(Debug, Arbitrary)]
struct Flip {
    at: u16,
    bit: u8,
    /// Whether the checksum fits what came out, as if the sender had meant it.
    is_meant: bool,
}

/// What inputs reach, so that a caller can see that they get into the program's depths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) packets: u64,
    pub(crate) honest_sums: u64,
    pub(crate) ended: u64,
    /// Sums sent to parents, and results of theirs that were taken.
    pub(crate) forwarded: u64,
    pub(crate) from_parents: u64,
    pub(crate) taken: u64,
    pub(crate) completed: u64,
    pub(crate) gathered: u64,
    pub(crate) repeats: u64,
    pub(crate) refused: u64,
    pub(crate) passed: u64,
    pub(crate) nacks: u64,
    pub(crate) multicasts: u64,
    pub(crate) damaged: u64,
}

impl Add for Reached {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            honest_sums: self.honest_sums + other.honest_sums,
            ended: self.ended + other.ended,
            forwarded: self.forwarded + other.forwarded,
            from_parents: self.from_parents + other.from_parents,
            taken: self.taken + other.taken,
            completed: self.completed + other.completed,
            gathered: self.gathered + other.gathered,
            repeats: self.repeats + other.repeats,
            refused: self.refused + other.refused,
            passed: self.passed + other.passed,
            nacks: self.nacks + other.nacks,
            multicasts: self.multicasts + other.multicasts,
            damaged: self.damaged + other.damaged,
        }
    }
}

struct Run {
    program: UserSpace,
    handover: Handover,
    node: Node,
    memory: NodeMemory,
    now: Time,
    /// How many segments each child of a formed group has sent.
    sent: BTreeMap<(GroupId, u16), u32>,
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
    // Whatever was done to the others, the program still serves the honest groups.
    run.honest_sum(1, 2);
    run.check();
    let counters = run.handover.counters();
    Reached {
        taken: counters.taken,
        completed: counters.completed,
        gathered: counters.gathered,
        repeats: counters.repeats,
        refused: counters.refused,
        passed: counters.passed,
        nacks: counters.nacks,
        multicasts: counters.multicasts,
        damaged: counters.damaged,
        ..run.reached
    }
}

fn edges(group: GroupId) -> NodeEdges {
    NodeEdges { group, node: 0 }
}

/// Every child has a port of its own, and so has the parent.
fn port_of(group: GroupId, child: u16) -> PortId {
    PortId(group.0 * u32::from(PARENT + 1) + u32::from(child))
}

fn path(port: PortId) -> DatagramPath {
    let peer = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4000 + port.0 as u16);
    let own = SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 1), DATAGRAM_PORT.get());
    DatagramPath { peer, own }
}

fn packet_of(port: PortId, checksum: Checksum, frame: &[u8]) -> Vec<u8> {
    let DatagramPath { peer, own } = path(port);
    packet(peer, own, [port.0 as u8; 12], checksum, frame)
}

/// A segment that the program folds, one that it gathers, one that it leaves, or a barrier.
fn shape(what: u8) -> Shape {
    let of = |operator, datatype, elements| {
        Shape::new(operator, datatype, elements).expect("it is defined")
    };
    match what % 8 {
        0 => Shape::BARRIER,
        1 => of(Operator::Sum, Datatype::F32, 1),
        2 => of(Operator::Max, Datatype::I64, 128),
        3 => of(Operator::Sum, Datatype::F64, 128),
        4 => of(Operator::MinLoc, Datatype::F32Index, 3),
        5 => of(Operator::Product, Datatype::U8, 1024),
        6 => of(Operator::Sum, Datatype::U8, PAYLOAD_MAX_BYTES),
        _ => of(Operator::Sum, Datatype::I32, u32::from(what) + 1),
    }
}

fn request(number: u32, shape: Shape) -> Part {
    let mut part = part(OperationNumber(number), sequence(number), shape);
    part.has_data = shape != Shape::BARRIER;
    part
}

impl Run {
    fn new() -> Self {
        let (program, tables) = UserSpace::new();
        let mut node = Node::new(NodeConfig {
            frame_versions: Versions::SPOKEN,
            radix_max: CHILDREN_MAX,
            osos_max: 64,
            groups_max: GROUPS + 2,
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            join_timeout_ns: TIMEOUT_NS,
            streams: StreamLimits::NONE,
        });
        node.take_datagrams(DATAGRAM_PORT, 1388);
        let mut run = Self {
            program,
            handover: Handover::new(tables),
            node,
            memory: NodeMemory::default(),
            now: Time(0),
            sent: BTreeMap::new(),
            reached: Reached::default(),
        };
        for (group, children) in (0..).map(GroupId).zip([1, 3, CHILDREN_MAX]) {
            let is_below = group == GroupId(2);
            run.form(group, children, WINDOW_MAX, group != GroupId(0), is_below);
        }
        run.form(HONEST, 2, 2, false, false);
        run.form(HONEST_BELOW, 2, 2, true, true);
        assert!(run.handover.serves(HONEST) && run.handover.serves(HONEST_BELOW));
        run
    }

    fn step(&mut self, step: &Step) {
        let named = |group: u8| GroupId(u32::from(group) % GROUPS);
        match *step {
            Step::Form { group, children, window, is_multicast, is_below } => {
                let children = 1 + u16::from(children) % CHILDREN_MAX;
                let window = 1 + u16::from(window) % WINDOW_MAX;
                self.form(named(group), children, window, is_multicast, is_below);
            }
            Step::Parent { group, back, shape: what, what: kind, by, ref flips } => {
                let Some(sent) = self.sent.get(&(named(group), 0)) else { return };
                // Mostly of the last that the first child has sent, as it is.
                let number = sent.wrapping_sub(1 + u32::from(back.saturating_sub(200) % 8));
                let flips = if back % 2 == 0 { &[None, None] } else { flips };
                let what = if what < 250 { number as u8 } else { what };
                let sequence = sequence(number);
                let message = match kind % 8 {
                    0 => Message::Ack { sequence, attempt: 0 },
                    1 => Message::Nack { sequence },
                    _ => Message::Result(request(number, shape(what))),
                };
                let header = Header { edge: edges(named(group)).edge(PARENT), message };
                let port = port_of(named(group), PARENT);
                if by % 16 == 0 {
                    self.hand_link(port, &header);
                } else {
                    self.send_packet(port, &header, by, flips);
                }
            }
            Step::Subscribe { group, child, what } => {
                let child = u16::from(child) % CHILDREN_MAX;
                if self.sent.contains_key(&(named(group), child)) {
                    let message = Message::Subscribed(Subscription::ALL[usize::from(what) % 3]);
                    let edge = edges(named(group)).edge(child);
                    self.hand_link(port_of(named(group), child), &Header { edge, message });
                }
            }
            Step::Admit { group, is_rested } => {
                if is_rested {
                    self.now = self.now.after_ns(REST_NS);
                }
                self.admit(named(group));
            }
            Step::End { group } => {
                self.reached.ended += u64::from(self.handover.serves(named(group)));
                self.handover.end(&mut self.node, named(group), self.now, &mut self.memory);
            }
            Step::Request { group, child, skip, shape: what, attempt, by, ref flips } => {
                let Some((port, header)) = self.next(named(group), child, skip, what, attempt)
                else {
                    return;
                };
                if by % 8 == 0 {
                    self.hand_link(port, &header);
                    return;
                }
                self.send_packet(port, &header, by, flips);
            }
            Step::Round { group, segments } => {
                for child in (0..=segments % 4).flat_map(|_| 0..CHILDREN_MAX as u8) {
                    if let Some((port, header)) = self.next(named(group), child, 200, 0, 0) {
                        self.send_packet(port, &header, child, &[None, None]);
                    }
                }
            }
            Step::Bytes { group, child, kept, ref bytes, has_checksum } => {
                let child = u16::from(child) % CHILDREN_MAX;
                let mut frame = good_frame(named(group), child);
                frame.truncate(usize::from(kept));
                frame.extend(bytes);
                let checksum = if has_checksum { Checksum::Full } else { Checksum::None };
                let port = port_of(named(group), child);
                self.deliver(port, &packet_of(port, checksum, &frame), true);
            }
            Step::Packet { group, child, kept, ref bytes } => {
                let child = u16::from(child) % CHILDREN_MAX;
                let port = port_of(named(group), child);
                let frame = good_frame(named(group), child);
                let mut packet = packet_of(port, Checksum::Full, &frame);
                packet.truncate(usize::from(kept));
                packet.extend(bytes);
                self.deliver(port, &packet, false);
            }
            Step::Lose { group, child, how } => {
                self.lose(named(group), u16::from(child) % CHILDREN_MAX, how);
            }
            Step::HonestSum { left, right } => self.honest_sum(left, right),
        }
        self.drain();
    }

    fn lose(&mut self, group: GroupId, child: u16, how: u8) {
        let port = port_of(group, child);
        match how % 3 {
            0 => {
                let edge = edges(group).edge(child);
                self.hand_link(port, &Header { edge, message: Message::Leave });
            }
            1 => self.node.handle_port_closed(port),
            _ => {
                self.node.withdraw(group, Epoch(0));
            }
        }
    }

    fn form(
        &mut self,
        group: GroupId,
        children: u16,
        window: u16,
        is_multicast: bool,
        is_below: bool,
    ) {
        let parent = is_below.then(|| ParentConfig {
            name: "above".into(),
            port: port_of(group, PARENT),
            child: ChildIndex(PARENT),
            capability: edges(group).capability(PARENT),
        });
        let config = GroupConfig {
            group,
            epoch: Epoch(0),
            frame_version: Versions::SPOKEN.newest,
            osos: window,
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            children: edges(group).children(children, 0, 1),
            parent,
            stream: None,
        };
        let Ok(arena) = self.node.install(self.now, config) else { return };
        self.memory.install(&self.node, group, arena);
        if is_multicast {
            self.node.use_multicast(group, multicast_capability(), MULTICAST_MAX_BYTES);
        }
        for child in 0..children {
            let header = Header { edge: edges(group).edge(child), message: Message::Join };
            self.hand_link(port_of(group, child), &header);
            self.sent.insert((group, child), 0);
        }
        if is_below {
            self.greet(group);
        }
        self.drain();
        self.admit(group);
        if is_below {
            let sequence = sequence(0);
            let message = Message::Ack { sequence, attempt: 0 };
            let header = Header { edge: edges(group).edge(PARENT), message };
            // The program learns the way from it.
            self.send_packet(port_of(group, PARENT), &header, 1, &[None, None]);
        }
    }

    /// Parent and aggregator tell each other that they take datagrams.
    fn greet(&mut self, group: GroupId) {
        let (edge, port) = (edges(group).edge(PARENT), port_of(group, PARENT));
        self.node.offer_datagrams(group);
        self.drain();
        let message = Message::Datagrams(Some(DATAGRAM_PORT));
        self.hand_link(port, &Header { edge, message });
        let header = Header { edge, message: Message::Probed(0) };
        let _ = self.hand(port, Carrier::Datagram, &header, &[]);
    }

    fn admit(&mut self, group: GroupId) {
        let path = |port| Some(path(port));
        self.handover
            .admit(self.now, &self.node, group, Some(MULTICAST), path)
            .expect("the tables have room");
    }

    /// A child's next request, or one near it; none if its group was never formed.
    fn next(
        &mut self,
        group: GroupId,
        child: u8,
        skip: u8,
        what: u8,
        attempt: u8,
    ) -> Option<(PortId, Header)> {
        let child = u16::from(child) % CHILDREN_MAX;
        let sent = self.sent.get_mut(&(group, child))?;
        let number = match skip {
            0..48 => sent.wrapping_sub(1 + u32::from(skip % 4)),
            48..56 => *sent + 1 + u32::from(skip % 4),
            56 => sent.wrapping_add(1 << 31),
            _ => *sent,
        };
        if number.wrapping_sub(*sent) < 8 {
            *sent = number + 1;
        }
        // Mostly as its siblings see it.
        let what = if what < 250 { number as u8 } else { what };
        let mut part = request(number, shape(what));
        part.retransmit.attempt = attempt;
        let header = Header { edge: edges(group).edge(child), message: Message::Request(part) };
        Some((port_of(group, child), header))
    }

    fn send_packet(&mut self, port: PortId, header: &Header, by: u8, flips: &[Option<Flip>; 2]) {
        let frame = encode(header, &vec![by; header.payload_bytes()]);
        let checksum = [Checksum::Full, Checksum::Partial, Checksum::None][usize::from(by) % 3];
        let mut packet = packet_of(port, checksum, &frame);
        let mut is_whole = true;
        for Flip { at, bit, is_meant } in flips.iter().flatten() {
            let at = usize::from(*at) % packet.len();
            packet[at] ^= 1 << (bit % 8);
            if *is_meant && at >= HEAD_BYTES {
                packet = packet_of(port, checksum, &packet[HEAD_BYTES..]);
            }
            is_whole &= at >= HEAD_BYTES;
        }
        self.deliver(port, &packet, is_whole);
    }

    /// A packet meets the program. If it passes and its envelope is whole, its frame reaches the process.
    fn deliver(&mut self, port: PortId, packet: &[u8], is_whole: bool) {
        let verdict = self.run_program(packet).0;
        if verdict == Verdict::Pass && is_whole {
            let (peer, frame) = (path(port).peer, &packet[HEAD_BYTES..]);
            self.hand_datagram(peer, frame);
        }
        self.drain();
    }

    /// Runs the program over a packet, and looks at its accounts.
    fn run_program(&mut self, packet: &[u8]) -> (Verdict, Vec<SentPacket>) {
        let served = self.program.groups_served();
        let before = self.handover.counters();
        let (verdict, sent) = self.program.run(1, packet, false);
        let counted = difference(self.handover.counters(), before);
        self.reached.packets += 1;
        let Counters { taken, completed, gathered, repeats, refused, passed, damaged, .. } =
            counted;
        assert!(taken + repeats + refused + passed + damaged <= 1, "{counted:?}");
        let is_from_parent = completed == 1 && taken == 0;
        assert!(completed + gathered <= taken || is_from_parent, "{counted:?}");
        assert!(!is_from_parent || served.iter().any(|it| it.is_below), "{counted:?}");
        assert!(!is_from_parent || repeats + refused + passed + damaged == 0, "{counted:?}");
        self.reached.from_parents += u64::from(is_from_parent);
        assert_eq!(claims_added(&served, &self.program.groups_served()), taken, "{counted:?}");
        if verdict == Verdict::Pass {
            assert!(sent.is_empty() && taken == gathered, "{counted:?}");
        }
        let mut kinds = [0; 4];
        let mut multicasts = 0;
        for SentPacket { bytes, .. } in &sent {
            let parsed = parse(bytes);
            let (header, _) = decode(parsed.frame).expect("the program sends frames");
            let edge = header.edge;
            if edge.child == EVERYONE {
                assert!(edge.capability == multicast_capability() && parsed.to == MULTICAST);
                assert!(header.payload_bytes() <= MULTICAST_MAX_BYTES as usize);
                multicasts += 1;
                continue;
            }
            assert_eq!(edge, edges(edge.group).edge(edge.child.0), "nobody learns of another's");
            assert_eq!(parsed.to, path(port_of(edge.group, edge.child.0)).peer);
            let at = match header.message {
                Message::Result(_) => 0,
                Message::Ack { .. } => 1,
                Message::Nack { .. } => 2,
                Message::Request(_) => {
                    assert_eq!(edge.child.0, PARENT);
                    3
                }
                other => panic!("the program sends no {other:?}"),
            };
            kinds[at] += 1;
        }
        let [results, acks, nacks, forwarded] = kinds;
        assert!(forwarded <= taken + repeats && completed * forwarded == 0, "{counted:?}");
        self.reached.forwarded += forwarded;
        assert_eq!((acks, nacks, multicasts), (counted.acks, counted.nacks, counted.multicasts));
        let children = served.iter().map(|it| it.children as u64);
        let copies = |children| match multicasts {
            0 if !is_from_parent => completed * children == results,
            // A child that receives multicast gets no copy.
            _ => completed == 1 && results <= children,
        };
        assert!(results <= repeats || children.into_iter().any(copies), "{counted:?}");
        (verdict, sent)
    }

    /// A datagram reaches the process, which looks at its source as a driver does.
    fn hand_datagram(&mut self, from: SocketAddrV4, frame: &[u8]) {
        let Ok((header, payload)) = decode(frame) else { return };
        let Some(port) = self.node.port_of_datagram(&header) else { return };
        if path(port).peer == from {
            // One that is refused is dropped.
            let _ = self.hand(port, Carrier::Datagram, &header, payload);
        }
    }

    fn hand_link(&mut self, port: PortId, header: &Header) {
        let payload = vec![0xCC; header.payload_bytes()];
        if self.hand(port, Carrier::Link, header, &payload).is_err() {
            self.node.handle_port_refused(port);
        }
        self.drain();
    }

    fn hand(
        &mut self,
        port: PortId,
        carrier: Carrier,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), tributary_protocol::node::FrameError> {
        let arrival = Arrival { now: self.now, port, carrier, header, payload };
        self.handover.handle_frame(&mut self.node, arrival, &mut self.memory)
    }

    /// Takes all that the process sends, and its events.
    fn drain(&mut self) {
        loop {
            while let Some(port) = self.node.poll_ready() {
                while let Some(transmit) = self.node.peek_transmit(port) {
                    let mut body = Vec::new();
                    if let Some(at) = transmit.body {
                        self.memory.append(at, transmit.header.payload_bytes(), &mut body);
                    }
                    self.node.pop_transmit(port);
                }
            }
            while self.node.poll_multicast().is_some() {}
            let Some(event) = self.node.poll_event() else { return };
            match event {
                Event::Released(arena) => self.memory.release(arena),
                Event::Close(port) => self.node.handle_port_closed(port),
                Event::Failed { group, .. } | Event::Ended { group, .. } => {
                    assert!(group != HONEST && group != HONEST_BELOW, "honest groups stand");
                    self.handover.forget(self.now, group);
                    self.sent.retain(|(of, _), _| *of != group);
                }
                Event::Formed { .. }
                | Event::DatagramPeer { .. }
                | Event::Datagrams { .. }
                | Event::Multicast { .. } => {}
            }
        }
    }

    /// Both members of each honest group send one number each, and get the sum from the program, or what the parent
    /// makes of the sum.
    fn honest_sum(&mut self, left: u32, right: u32) {
        let sum = left.wrapping_add(right).to_le_bytes().to_vec();
        let (_, sent) = self.honest_requests(HONEST, left, right);
        let results = [(ChildIndex(0), sum.clone()), (ChildIndex(1), sum.clone())];
        assert_eq!(bodies(&sent), results);
        let (part, sent) = self.honest_requests(HONEST_BELOW, left, right);
        assert_eq!(bodies(&sent), [(ChildIndex(PARENT), sum)]);
        let above = left.wrapping_mul(right).to_le_bytes().to_vec();
        let header =
            Header { edge: edges(HONEST_BELOW).edge(PARENT), message: Message::Result(part) };
        let frame = encode(&header, &above);
        let packet = packet_of(port_of(HONEST_BELOW, PARENT), Checksum::Full, &frame);
        let sent = self.run_program(&packet).1;
        assert_eq!(bodies(&sent), [(ChildIndex(0), above.clone()), (ChildIndex(1), above)]);
        self.reached.honest_sums += 2;
    }

    /// The segment, and what the program sends at the last request.
    fn honest_requests(
        &mut self,
        group: GroupId,
        left: u32,
        right: u32,
    ) -> (Part, Vec<SentPacket>) {
        let number = self.sent[&(group, 0)];
        let shape = Shape::new(Operator::Sum, Datatype::U32, 1).expect("a sum of one number");
        let part = request(number, shape);
        let mut sent = Vec::new();
        for (child, value) in (0..).zip([left, right]) {
            self.sent.insert((group, child), number + 1);
            let message = Message::Request(part);
            let frame =
                encode(&Header { edge: edges(group).edge(child), message }, &value.to_le_bytes());
            let packet = packet_of(port_of(group, child), Checksum::Full, &frame);
            sent = self.run_program(&packet).1;
        }
        (part, sent)
    }

    /// What both sides find in the tables.
    fn check(&mut self) {
        self.drain();
        for Served { window, children, is_below, words, group } in self.program.groups_served() {
            assert!(self.handover.serves(group));
            for (index, word) in words.iter().enumerate() {
                let place = format!("slot {index} of group {group}: {word:?}");
                check_word(index, *word, children, words.len(), &place);
                check_credit(*word, window, is_below, &words, &place);
            }
        }
    }
}

/// The receivers of frames, and what is in them.
fn bodies(sent: &[SentPacket]) -> Vec<(ChildIndex, Vec<u8>)> {
    let frames = sent.iter().map(|it| decode(&it.bytes[HEAD_BYTES..]).expect("a frame"));
    frames.map(|(header, body)| (header.edge.child, body.to_vec())).collect()
}

fn multicast_capability() -> Capability {
    Capability::from_bytes([0xEE; 16])
}

/// A request that the program would take from a child that has sent nothing.
fn good_frame(group: GroupId, child: u16) -> Vec<u8> {
    let message = Message::Request(request(0, shape(1)));
    encode(&Header { edge: edges(group).edge(child), message }, &[0; 4])
}

fn check_word(index: usize, word: Word, children: usize, slots: usize, place: &str) {
    let (claims, filled) = (word.claims(), word.filled_lanes());
    assert!(word.phase() == Phase::Empty || word.sequence().0 as usize % slots == index, "{place}");
    assert!((children..CHILDREN_MAX.into()).all(|child| !word.has_claim(child)), "{place}");
    match word.phase() {
        Phase::Writing => panic!("{place}: no run is under way"),
        Phase::Gathering => assert!(claims == filled && filled < children, "{place}"),
        Phase::Gathered | Phase::Forwarded | Phase::Done => {
            assert!(claims == children && filled == children, "{place}")
        }
        Phase::Empty | Phase::OfProcess | Phase::DoneByProcess => {
            assert_eq!((claims, filled), (0, 0), "{place}");
        }
    }
}

/// What is open was begun when what lies a window before it was done. That slot may have moved on since.
fn check_credit(word: Word, window: u16, is_below: bool, words: &[Word], place: &str) {
    if !matches!(word.phase(), Phase::Gathering | Phase::Gathered) {
        return;
    }
    let earlier = Sequence(word.sequence().0.wrapping_sub(window.into()));
    let before = words[earlier.0 as usize % words.len()];
    let is_first = word.sequence().distance_from(Sequence::FIRST) < window.into();
    let is_done = match before.sequence().distance_from(earlier) {
        // Below another aggregator, members may have had the result by multicast.
        0 if is_below && matches!(before.phase(), Phase::Forwarded | Phase::OfProcess) => true,
        0 => matches!(before.phase(), Phase::Done | Phase::DoneByProcess),
        ahead => before.phase() != Phase::Empty && ahead < 1 << 31,
    };
    assert!(is_first || is_done, "{place}, before it {before:?}");
}

fn difference(after: Counters, before: Counters) -> Counters {
    Counters {
        taken: after.taken - before.taken,
        completed: after.completed - before.completed,
        gathered: after.gathered - before.gathered,
        repeats: after.repeats - before.repeats,
        refused: after.refused - before.refused,
        passed: after.passed - before.passed,
        acks: after.acks - before.acks,
        nacks: after.nacks - before.nacks,
        multicasts: after.multicasts - before.multicasts,
        damaged: after.damaged - before.damaged,
    }
}

/// How many lanes were claimed between two looks at the tables.
fn claims_added(before: &[Served], after: &[Served]) -> u64 {
    let both = before.iter().zip(after).flat_map(|(before, after)| {
        assert_eq!(before.group, after.group, "the program changes no place");
        before.words.iter().zip(&after.words)
    });
    both.map(|(before, after)| {
        let is_same = before.sequence() == after.sequence();
        after.claims() - if is_same { before.claims() } else { 0 }
    })
    .sum::<usize>() as u64
}
