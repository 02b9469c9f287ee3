//! Goal: an aggregator's memory for streams depends only on radix, window and chunk length. Method: in a
//! tree of three aggregators, four members stream vectors of 1 MiB to 1 GiB, alone and among many groups,
//! with a driver that moves no payload but notes every place that is written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tributary_protocol::endpoint::{Endpoint, EndpointConfig, Event};
use tributary_protocol::node::{
    GroupConfig, Node, NodeConfig, ParentConfig, PortId, StreamConfig, StreamLimits,
};
use tributary_protocol::payloads::{ArenaId, Lane, Payloads, Place, Source};
use tributary_protocol::{Carrier, StreamTerms, Time};
use tributary_protocol_testing::NodeEdges;
use tributary_protocol_testing::workload::OperationPlan;
use tributary_wire::frame::{Edge, Header, Shape, Versions};
use tributary_wire::{Datatype, EndpointId, Epoch, GroupId, Operator, TreeId};

const MIB: usize = 1 << 20;
const TERMS: StreamTerms = StreamTerms { chunk_bytes: 1 << 16, window: 4 };
const RADIX: u16 = 2;

/// Places of the stream arena that were written, and payload parked there, now and at most.
#[derive(Default)]
struct Places {
    written: BTreeSet<(u16, Option<u16>)>,
    parked: BTreeMap<ParkingPlace, usize>,
    parked_bytes_max: usize,
}

type ParkingPlace = (u16, u16);

impl Places {
    fn note(&mut self, at: Place) {
        assert_eq!(at.arena, ArenaId::Stream(TreeId(0)), "nothing goes through groups' arenas");
        let lane = match at.lane {
            Lane::Accumulator => None,
            Lane::Parked(child) => Some(child.0),
        };
        self.written.insert((at.slot, lane));
    }

    fn take(&mut self, source: Source<'_>) {
        if let Source::Parked(Place { slot, lane: Lane::Parked(child), .. }) = source {
            assert!(self.parked.remove(&(slot, child.0)).is_some(), "taken once");
        }
    }
}

impl Payloads for Places {
    fn park(&mut self, at: Place, incoming: &[u8]) {
        self.note(at);
        let Lane::Parked(child) = at.lane else { panic!("parked in an accumulator") };
        assert!(self.parked.insert((at.slot, child.0), incoming.len()).is_none());
        self.parked_bytes_max = self.parked_bytes_max.max(self.parked.values().sum());
    }

    fn begin(&mut self, at: Place, _: Shape, incoming: Source<'_>) {
        self.note(at);
        self.take(incoming);
    }

    fn fold(&mut self, at: Place, _: Shape, incoming: Source<'_>) {
        self.note(at);
        self.take(incoming);
    }

    fn finish(&mut self, at: Place, _: Shape) {
        self.note(at);
    }

    fn store(&mut self, at: Place, _: &[u8]) {
        self.note(at);
    }
}

/// Aggregator 0 is the root, with aggregators 1 and 2 below it. Each of these has two members of every group.
struct Tree {
    nodes: [Node; 3],
    places: [Places; 3],
    members: Vec<Endpoint>,
    /// Frames on their way, with their destinations.
    wires: VecDeque<(End, Header)>,
    completed: usize,
}

#[derive(Clone, Copy)]
enum End {
    Node(usize, PortId),
    Member(usize),
}

/// The edges below one of the aggregators.
fn edges(group: u32, node: usize) -> NodeEdges {
    NodeEdges { group: GroupId(group), node: node as u32 }
}

/// The other end of an aggregator's port: ports 3g and 3g + 1 are group g's children, 3g + 2 its parent.
fn peer(node: usize, port: PortId) -> End {
    let (group, place) = (port.0 / 3, port.0 % 3);
    match (node, place) {
        (0, child) => End::Node(1 + child as usize, PortId(3 * group + 2)),
        (_, 2) => End::Node(0, PortId(3 * group + node as u32 - 1)),
        (_, child) => End::Member((group * 4 + (node as u32 - 1) * 2 + child) as usize),
    }
}

impl Tree {
    fn new(groups: u32) -> Self {
        let config = NodeConfig {
            frame_versions: Versions::SPOKEN,
            radix_max: RADIX,
            osos_max: groups,
            groups_max: groups,
            payload_max_bytes: 64,
            join_timeout_ns: 1,
            streams: StreamLimits {
                trees: 1,
                window_max: TERMS.window,
                chunk_bytes_max: TERMS.chunk_bytes,
            },
        };
        let mut tree = Self {
            nodes: [(); 3].map(|()| Node::new(config)),
            places: Default::default(),
            members: Vec::new(),
            wires: VecDeque::new(),
            completed: 0,
        };
        (0..groups).for_each(|group| tree.add(group));
        tree.settle();
        tree
    }

    fn add(&mut self, group: u32) {
        for node in 0..3_usize {
            let span = if node == 0 { 2 } else { 1 };
            let first = node.saturating_sub(1) as u32 * 2;
            let parent = (node > 0).then(|| {
                let Edge { child, capability, .. } = edges(group, 0).edge(node as u16 - 1);
                ParentConfig { name: "root".into(), port: PortId(3 * group + 2), child, capability }
            });
            let config = GroupConfig {
                group: GroupId(group),
                epoch: Epoch(0),
                frame_version: Versions::SPOKEN.newest,
                osos: 1,
                payload_max_bytes: 64,
                children: edges(group, node).children(RADIX, first, span),
                parent,
                stream: Some(StreamConfig { tree: TreeId(0), terms: TERMS }),
            };
            self.nodes[node].install(Time(0), config).expect("it has room");
        }
        for member in 0..4 {
            let edges = edges(group, 1 + usize::from(member / 2));
            let config = edges.member(member % 2, EndpointId(member.into()));
            self.members.push(Endpoint::new(EndpointConfig { stream: Some(TERMS), ..config }));
        }
    }

    /// Every member of every group streams a vector.
    fn stream(&mut self, len_bytes: usize) {
        let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F32, (len_bytes / 4) as u64);
        let spec = sum.spec(EndpointId(0));
        self.completed = 0;
        for member in &mut self.members {
            member.start_stream(spec, usize::MAX).expect("one at a time");
        }
        self.settle();
        assert_eq!(self.completed, self.members.len());
    }

    fn settle(&mut self) {
        loop {
            // The second child of every aggregator is ahead of the first, so aggregators must park its
            // contributions.
            for member in (0..self.members.len()).rev() {
                if member % 2 == 1 || self.wires.is_empty() {
                    self.pump_member(member);
                }
            }
            let Some((end, header)) = self.wires.pop_front() else { return };
            self.deliver(end, &header);
        }
    }

    fn deliver(&mut self, end: End, header: &Header) {
        const PAYLOAD: &[u8] = &[0; TERMS.chunk_bytes as usize];
        match end {
            End::Member(member) => {
                self.members[member].handle_frame(Time(0), Carrier::Link, header).expect("honest");
                while let Some(event) = self.members[member].poll_event() {
                    self.completed += usize::from(matches!(event, Event::Completed(_)));
                }
            }
            End::Node(node, port) => {
                let payload = &PAYLOAD[..header.payload_bytes()];
                let (machine, places) = (&mut self.nodes[node], &mut self.places[node]);
                let carrier = Carrier::Link;
                machine
                    .handle_frame(Time(0), port, carrier, header, payload, places)
                    .expect("honest");
            }
        }
        (0..3).for_each(|node| self.pump_node(node));
    }

    fn pump_node(&mut self, node: usize) {
        while let Some(port) = self.nodes[node].poll_ready() {
            while let Some(transmit) = self.nodes[node].peek_transmit(port) {
                self.nodes[node].pop_transmit(port);
                self.wires.push_back((peer(node, port), transmit.header));
            }
        }
        while self.nodes[node].poll_event().is_some() {}
    }

    fn pump_member(&mut self, member: usize) {
        let (group, index) = (member as u32 / 4, member as u32 % 4);
        let end = End::Node(1 + index as usize / 2, PortId(3 * group + index % 2));
        while let Some(transmit) = self.members[member].peek_transmit() {
            self.members[member].pop_transmit(Time(0));
            self.wires.push_back((end, transmit.header));
        }
    }

    /// Bytes that each aggregator's streams have ever written, and the most that were parked at once.
    fn used(&self) -> [(usize, usize); 3] {
        let used =
            |it: &Places| (it.written.len() * TERMS.chunk_bytes as usize, it.parked_bytes_max);
        [used(&self.places[0]), used(&self.places[1]), used(&self.places[2])]
    }
}

/// Accumulators for the window and as much history, and parking places for all children: 24 chunks.
const BOUND_BYTES: usize =
    2 * TERMS.window as usize * (1 + RADIX as usize) * TERMS.chunk_bytes as usize;

#[test]
fn memory_does_not_grow_with_the_vector() {
    let mut used = Vec::new();
    for len_bytes in [MIB, 32 * MIB, 1024 * MIB] {
        let mut tree = Tree::new(1);
        tree.stream(len_bytes);
        let chunks = (len_bytes / TERMS.chunk_bytes as usize) as u64;
        assert!(tree.nodes.iter().all(|node| node.stats().chunk_results == chunks));
        used.push(tree.used());
    }
    assert!(used[0].iter().all(|(touched, parked)| *touched > 0 && *parked > 0), "{used:?}");
    assert_eq!((used[0], used[1]), (used[1], used[2]), "1 MiB, 32 MiB and 1 GiB need the same");
    for (touched, parked) in used.into_iter().flatten() {
        assert!(touched <= BOUND_BYTES, "{touched} bytes touched, {BOUND_BYTES} are the bound");
        let window_bytes = usize::from(RADIX * TERMS.window) * TERMS.chunk_bytes as usize;
        assert!(parked <= window_bytes, "radix x window is {window_bytes}, {parked} parked");
    }
}

#[test]
fn memory_does_not_grow_with_the_number_of_groups() {
    let mut alone = Tree::new(1);
    alone.stream(MIB);
    let mut many = Tree::new(40);
    many.stream(MIB);
    for (alone, many) in alone.used().iter().zip(many.used()) {
        assert!(many.0 <= BOUND_BYTES && many.0 >= alone.0, "{alone:?} alone, {many:?} of many");
    }
}

#[test]
fn a_tree_has_one_arena_whichever_group_streams() {
    let tree = Tree::new(40);
    let arena = |group| tree.nodes[1].stream_arena(GroupId(group)).expect("it may stream");
    assert_eq!(arena(0), arena(39));
    assert_eq!(tree.nodes[1].stream_arena(GroupId(40)), None);
    let (slots, children) = (usize::from(arena(0).slots), usize::from(arena(0).children));
    let bytes = slots * (1 + children) * arena(0).payload_max_bytes as usize;
    assert_eq!(bytes, BOUND_BYTES);
}
