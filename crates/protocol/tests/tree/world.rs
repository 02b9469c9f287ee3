//! All machines of a scenario, their drivers, and virtual time.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_protocol::endpoint::EndpointConfig;
use tributary_protocol::node::{
    ChildConfig, Event, FrameError, GroupConfig, Node, NodeConfig, ParentConfig, PortId,
    StreamConfig,
};
use tributary_protocol::{Carrier, Time};
use tributary_protocol_testing::values::Below;
use tributary_protocol_testing::{NodeMemory, Ports, frames};
use tributary_wire::frame::{Header, Versions};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId, TreeId};

use crate::link::{Holder, LOWER, Link, Timing, UPPER};
use crate::member::{DATAGRAM_PORT, Member};
use crate::plan::{GroupPlan, STREAMS, Scenario};

/// Shorter than the longest segments here, which therefore go over links.
pub(crate) const SEGMENT_MAX_BYTES: u32 = 100;

pub(crate) const JOIN_TIMEOUT_NS: u64 = 1_000_000;

/// More events than any scenario here needs. A run that reaches it is stuck in a loop.
const STEPS_MAX: u64 = 2_000_000;

/// An aggregation node and its driver's state.
pub(crate) struct NodeHost {
    pub(crate) node: Node,
    pub(crate) memory: NodeMemory,
    /// The link, and the end of it, at each port number.
    ports: Ports<(usize, usize)>,
    pub(crate) events: Vec<Event>,
    pub(crate) refused: Vec<FrameError>,
    /// Datagrams that were dropped, with the error; none if no edge was found.
    pub(crate) dropped: Vec<Option<FrameError>>,
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) nodes: Vec<NodeHost>,
    pub(crate) members: Vec<Member>,
    pub(crate) links: Vec<Link>,
    pub(crate) timing: Timing,
    /// Hash of every frame, with its time and place.
    pub(crate) frames_hash: u64,
    groups: Vec<GroupPlan>,
    agenda: BTreeMap<(u64, u64), Item>,
    entries: u64,
    random: Pcg64,
}

enum Item {
    Arrive { link: usize, to: usize, carrier: Carrier, frame: Vec<u8> },
    LearnClosed { link: usize, to: usize },
    Multicast { receiver: Receiver, frame: Vec<u8> },
    Connect(usize),
    Start(usize),
    Leave(usize),
}

/// A receiver of multicast.
#[derive(Clone, Copy)]
enum Receiver {
    Node(usize),
    Member(usize),
}

/// Counters of multicasts.
fn multicast_capability(group: GroupId) -> Capability {
    Capability::from_bytes([0xE0 + group.0 as u8; 16])
}

impl NodeHost {
    fn new(config: NodeConfig, timing: &Timing) -> Self {
        Self {
            node: Node::new(config),
            memory: NodeMemory::with_checks(timing.is_disorderly || timing.datagrams.is_some()),
            ports: Ports::default(),
            events: Vec::new(),
            refused: Vec::new(),
            dropped: Vec::new(),
        }
    }

    pub(crate) fn open_ports(&self) -> usize {
        self.ports.iter().count()
    }

    pub(crate) fn failures(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Failed { .. })).count()
    }
}

impl World {
    /// Installs every group, root first, and schedules the members' connections.
    pub(crate) fn new(scenario: &Scenario, timing: Timing) -> Self {
        let osos_max = scenario.groups.iter().map(|group| u32::from(group.osos)).sum();
        let config = NodeConfig {
            frame_versions: Versions::SPOKEN,
            radix_max: 64,
            osos_max,
            groups_max: scenario.groups.len() as u32,
            payload_max_bytes: 256,
            join_timeout_ns: JOIN_TIMEOUT_NS,
            streams: STREAMS,
        };
        let nodes = scenario.fabric.iter().map(|_| NodeHost::new(config, &timing)).collect();
        let mut world = Self {
            now: 0,
            nodes,
            members: Vec::new(),
            links: Vec::new(),
            timing,
            frames_hash: 0xCBF2_9CE4_8422_2325,
            groups: scenario.groups.clone(),
            agenda: BTreeMap::new(),
            entries: 0,
            random: Pcg64::seed_from_u64(timing.seed),
        };
        for host in &mut world.nodes {
            if timing.datagrams.is_some() {
                host.node.take_datagrams(DATAGRAM_PORT, SEGMENT_MAX_BYTES);
            }
        }
        for group in 0..world.groups.len() {
            world.install(group);
            world.add_members(group, scenario.seed);
        }
        world
    }

    pub(crate) fn group_id(group: usize) -> GroupId {
        GroupId(group as u32)
    }

    pub(crate) fn epoch(group: usize) -> Epoch {
        Epoch(100 + group as u32)
    }

    /// Sets the same groups up again on the same aggregators, with new members.
    pub(crate) fn renew(&mut self, scenario: &Scenario) {
        self.members.clear();
        for group in 0..self.groups.len() {
            self.install(group);
            self.add_members(group, scenario.seed);
        }
    }

    fn install(&mut self, group: usize) {
        let plan = self.groups[group].clone();
        for tree_node in &plan.tree {
            let parent = tree_node.parent.map(|(parent, child)| {
                let capability = plan.tree[parent].children[usize::from(child)].capability;
                let upper = plan.tree[parent].node;
                let port = self.nodes[tree_node.node].ports.free();
                let lower = Holder::Node { node: tree_node.node, port };
                self.connect(lower, upper, &plan);
                ParentConfig {
                    name: upper.to_string().into(),
                    port,
                    child: ChildIndex(child),
                    capability,
                }
            });
            let children = tree_node
                .children
                .iter()
                .map(|child| ChildConfig {
                    capability: child.capability,
                    members: child.members.clone(),
                    is_node: matches!(child.below, Below::Node(_)),
                })
                .collect();
            let config = GroupConfig {
                group: Self::group_id(group),
                epoch: Self::epoch(group),
                frame_version: Versions::SPOKEN.newest,
                osos: plan.osos,
                payload_max_bytes: plan.payload_max_bytes,
                children,
                parent,
                stream: plan.stream.map(|terms| StreamConfig { tree: TreeId(0), terms }),
            };
            let host = &mut self.nodes[tree_node.node];
            let arena = host.node.install(Time(self.now), config).expect("nodes have room");
            let id = Self::group_id(group);
            host.memory.install(&host.node, id, arena);
            host.node.offer_datagrams(id);
            if self.timing.datagrams.is_some_and(|travel| travel.has_multicast) {
                let capability = multicast_capability(id);
                host.node.use_multicast(id, capability, SEGMENT_MAX_BYTES);
            }
            self.pump_node(tree_node.node);
        }
    }

    fn add_members(&mut self, group: usize, seed: u64) {
        for member in 0..self.groups[group].members {
            let (_, child, capability) = self.place(group, member);
            let plan = &self.groups[group];
            let config = EndpointConfig {
                group: Self::group_id(group),
                epoch: Self::epoch(group),
                frame_version: Versions::SPOKEN.newest,
                child,
                capability,
                endpoint: tributary_wire::EndpointId(member),
                osos: plan.osos,
                payload_max_bytes: plan.payload_max_bytes,
                operations_max: plan.overlap,
                stream: plan.stream,
            };
            let script = plan.script.clone();
            let mut member = Member::new(config, group, script, seed);
            if self.timing.datagrams.is_some() {
                member.endpoint.offer_datagrams(DATAGRAM_PORT, SEGMENT_MAX_BYTES);
            }
            if self.timing.datagrams.is_some_and(|travel| travel.has_multicast) {
                member.endpoint.subscribe_multicast(multicast_capability(Self::group_id(group)));
            }
            self.members.push(member);
            let at = self.now + self.random.random_range(1..=self.timing.delay_ns_max);
            self.put(at, Item::Connect(self.members.len() - 1));
        }
    }

    /// The aggregator that serves a member, and the member's place and capability there.
    pub(crate) fn place(&self, group: usize, member: u32) -> (usize, ChildIndex, Capability) {
        for tree_node in &self.groups[group].tree {
            for (index, child) in tree_node.children.iter().enumerate() {
                if child.below == Below::Member(member) {
                    return (tree_node.node, ChildIndex(index as u16), child.capability);
                }
            }
        }
        panic!("member {member} is nowhere in group {group}");
    }

    /// Lets a member connect at another time than the random one.
    pub(crate) fn connect_at(&mut self, member: usize, at: u64) {
        self.agenda.retain(|_, item| !matches!(item, Item::Connect(it) if *it == member));
        self.put(at, Item::Connect(member));
    }

    fn put(&mut self, at: u64, item: Item) {
        self.entries += 1;
        self.agenda.insert((at, self.entries), item);
    }

    /// A new link from `lower` up to an aggregator, which gives it a free port.
    pub(crate) fn connect(&mut self, lower: Holder, upper: usize, plan: &GroupPlan) -> usize {
        let link = self.links.len();
        let port = self.nodes[upper].ports.free();
        self.nodes[upper].ports.plug(port, (link, UPPER));
        if let Holder::Node { node, port } = lower {
            self.nodes[node].ports.plug(port, (link, LOWER));
        }
        self.links.push(Link::new(lower, Holder::Node { node: upper, port }, plan));
        link
    }

    /// Processes the next event; false if none is left.
    pub(crate) fn step(&mut self) -> bool {
        let due_nodes = self.nodes.iter().filter_map(|host| host.node.poll_timeout());
        let due_members = self.members.iter().filter_map(|member| member.endpoint.poll_timeout());
        let due = due_nodes.chain(due_members).min();
        let next = self.agenda.first_key_value().map(|((at, _), _)| *at);
        if let Some(due) = due
            && next.is_none_or(|next| due.0 <= next)
        {
            self.now = self.now.max(due.0);
            for node in 0..self.nodes.len() {
                self.nodes[node].node.handle_timeout(Time(self.now));
                self.pump_node(node);
            }
            for member in 0..self.members.len() {
                self.members[member].endpoint.handle_timeout(Time(self.now));
                self.pump_member(member);
            }
            return true;
        }
        let Some(((at, _), item)) = self.agenda.pop_first() else { return false };
        self.now = at;
        match item {
            Item::Arrive { link, to, carrier, frame } => self.arrive(link, to, carrier, frame),
            Item::LearnClosed { link, to } => self.close(link, to),
            Item::Multicast { receiver, frame } => self.deliver_multicast(receiver, &frame),
            Item::Connect(member) => self.connect_member(member),
            Item::Start(member) => {
                // If it is too busy to start another operation, the next completion does not delay
                // this further.
                if self.members[member].start_next() {
                    self.put_start(member);
                    self.pump_member(member);
                }
            }
            Item::Leave(member) => self.leave(member),
        }
        true
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.step() {
                return;
            }
        }
        panic!("not quiet after {STEPS_MAX} steps");
    }

    /// Runs until a condition holds, which must hold in the end.
    pub(crate) fn run_until(&mut self, mut holds: impl FnMut(&Self) -> bool) {
        while !holds(self) {
            assert!(self.step(), "all is quiet and it doesn't hold");
        }
    }

    fn connect_member(&mut self, member: usize) {
        let group = self.members[member].group;
        let (node, _, _) = self.place(group, self.members[member].index);
        let link = self.connect(Holder::Member(member), node, &self.groups[group].clone());
        self.members[member].link = Some(link);
        self.put_start(member);
        self.pump_member(member);
    }

    fn put_start(&mut self, member: usize) {
        let state = &self.members[member];
        if state.started < state.script.len() && state.failed.is_none() && !state.has_left {
            let pause = state.pause.filter(|it| it.0 == state.started).map_or(0, |it| it.1);
            let at = self.now + pause + self.random.random_range(1..=self.timing.delay_ns_max);
            self.put(at, Item::Start(member));
        } else if state.is_done() && state.leaves && !state.has_left {
            let at = self.now + self.random.random_range(1..=8 * self.timing.delay_ns_max);
            self.put(at, Item::Leave(member));
        }
    }

    pub(crate) fn leave(&mut self, member: usize) {
        self.members[member].has_left = true;
        self.members[member].endpoint.leave();
        self.pump_member(member);
    }

    fn arrive(&mut self, link: usize, to: usize, carrier: Carrier, frame: Vec<u8>) {
        if carrier == Carrier::Datagram {
            self.links[link].on_arrived(to, carrier, &frame);
            if self.links[link].is_open[to] {
                self.deliver(link, to, carrier, &frame);
            }
            return;
        }
        if let Some(stopped) = &mut self.links[link].stopped[to] {
            stopped.push(frame);
            return;
        }
        self.links[link].on_arrived(to, carrier, &frame);
        if self.links[link].is_open[to] {
            self.deliver(link, to, carrier, &frame);
        }
        if self.links[link].is_open[1 - to] {
            match self.links[link].holders[1 - to] {
                Holder::Node { node, port } => {
                    self.flush(node, port);
                    self.pump_node(node);
                }
                Holder::Member(member) => self.pump_member(member),
            }
        }
    }

    fn deliver(&mut self, link: usize, to: usize, carrier: Carrier, frame: &[u8]) {
        let (header, payload) = frames::decode(frame).expect("machines send frames that decode");
        let now = Time(self.now);
        match self.links[link].holders[to] {
            Holder::Node { node, port } => {
                let host = &mut self.nodes[node];
                host.memory.expect(&header);
                if carrier == Carrier::Datagram && host.node.port_of_datagram(&header) != Some(port)
                {
                    host.dropped.push(None);
                    return;
                }
                let taken =
                    host.node.handle_frame(now, port, carrier, &header, payload, &mut host.memory);
                if carrier == Carrier::Datagram {
                    host.dropped.extend(taken.err().map(Some));
                } else if let Err(error) = taken {
                    self.nodes[node].refused.push(error);
                    self.refuse(link, to);
                }
                self.pump_node(node);
            }
            Holder::Member(member) => {
                if let Err(error) = self.members[member].take(now, carrier, &header, payload) {
                    panic!("member {member} refuses a frame of an honest node: {error}");
                }
                self.pump_member(member);
            }
        }
    }

    /// An end closes, or learns that the other end did.
    pub(crate) fn close(&mut self, link: usize, end: usize) {
        self.hang_up(link, end, false);
    }

    /// An end closes because its peer broke the protocol.
    pub(crate) fn refuse(&mut self, link: usize, end: usize) {
        self.hang_up(link, end, true);
    }

    fn hang_up(&mut self, link: usize, end: usize, is_refused: bool) {
        if !std::mem::take(&mut self.links[link].is_open[end]) {
            return;
        }
        if self.links[link].is_open[1 - end] {
            let at = self.links[link].closes_at(1 - end, self.now);
            self.put(at, Item::LearnClosed { link, to: 1 - end });
        }
        match self.links[link].holders[end] {
            Holder::Node { node, port } => {
                self.nodes[node].ports.unplug(port);
                let machine = &mut self.nodes[node].node;
                if is_refused {
                    machine.handle_port_refused(port);
                } else {
                    machine.handle_port_closed(port);
                }
                self.pump_node(node);
            }
            Holder::Member(member) => {
                let endpoint = &mut self.members[member].endpoint;
                if is_refused {
                    endpoint.handle_link_refused();
                } else {
                    endpoint.handle_link_closed();
                }
                self.pump_member(member);
            }
        }
    }

    /// The end stops reading.
    pub(crate) fn hold(&mut self, link: usize, end: usize) {
        self.links[link].stopped[end] = Some(Vec::new());
    }

    /// An aggregator's process dies: all its links close.
    pub(crate) fn kill_node(&mut self, node: usize) {
        let links: Vec<(usize, usize)> = self.nodes[node].ports.iter().collect();
        for (link, end) in links {
            self.links[link].is_open[end] = false;
            let at = self.links[link].closes_at(1 - end, self.now);
            self.put(at, Item::LearnClosed { link, to: 1 - end });
        }
        self.nodes[node].ports.clear();
    }

    pub(crate) fn pump_node(&mut self, node: usize) {
        loop {
            while let Some(port) = self.nodes[node].node.poll_ready() {
                self.flush(node, port);
            }
            self.multicast(node);
            let Some(event) = self.nodes[node].node.poll_event() else { return };
            match event {
                Event::Released(arena) => self.nodes[node].memory.release(arena),
                Event::Close(port) => {
                    if let Some((link, end)) = self.nodes[node].ports.at(port) {
                        self.close(link, end);
                    }
                }
                _ => {}
            }
            self.nodes[node].events.push(event);
        }
    }

    /// Sends an aggregator's multicasts to everyone else in the group.
    fn multicast(&mut self, node: usize) {
        while let Some((group, transmit)) = self.nodes[node].node.poll_multicast() {
            let travel = self.timing.datagrams.expect("nobody multicasts without datagrams");
            let length = transmit.header.payload_bytes();
            let mut frame = transmit.header.encode().to_vec();
            if let Some(place) = transmit.body {
                self.nodes[node].memory.append(place, length, &mut frame);
            }
            self.hash(&frame);
            let plan = &self.groups[group.0 as usize];
            let nodes = plan.tree.iter().map(|it| it.node).filter(|it| *it != node);
            let members = (0..self.members.len()).filter(|it| {
                self.members[*it].group == group.0 as usize && *it >= travel.without_multicast
            });
            let receivers: Vec<Receiver> =
                nodes.map(Receiver::Node).chain(members.map(Receiver::Member)).collect();
            for receiver in receivers {
                let at = self.now + self.random.random_range(1..=self.timing.delay_ns_max);
                let is_lost = self.random.random_bool(travel.loss) || travel.multicast_is_blocked;
                if !is_lost && at < travel.blocked_at {
                    self.put(at, Item::Multicast { receiver, frame: frame.clone() });
                }
            }
        }
    }

    fn deliver_multicast(&mut self, receiver: Receiver, frame: &[u8]) {
        let (header, payload) = frames::decode(frame).expect("machines send frames that decode");
        let now = Time(self.now);
        match receiver {
            Receiver::Node(node) => {
                // Sequences of other groups may be removed too, which weakens the check.
                let is_upward = |link: &&mut Link| matches!(link.holders[LOWER], Holder::Node { node: lower, .. } if lower == node);
                self.links.iter_mut().filter(is_upward).for_each(|link| link.on_multicast(&header));
                let host = &mut self.nodes[node];
                let taken = host.node.handle_multicast(now, &header, payload, &mut host.memory);
                // The group may have ended by then.
                host.dropped.extend(taken.err().map(Some));
                self.pump_node(node);
            }
            Receiver::Member(member) => {
                if let Some(link) = self.members[member].link {
                    self.links[link].on_multicast(&header);
                    let taken =
                        self.members[member].take(now, Carrier::Multicast, &header, payload);
                    taken.expect("multicast results match the requests");
                    self.pump_member(member);
                }
            }
        }
    }

    fn flush(&mut self, node: usize, port: PortId) {
        let Some((link, end)) = self.nodes[node].ports.at(port) else { return };
        while self.links[link].takes_more(1 - end, &self.timing) {
            let host = &mut self.nodes[node];
            let Some(transmit) = host.node.peek_transmit(port) else { return };
            let length = transmit.header.payload_bytes();
            assert_eq!(transmit.body.is_some(), length > 0);
            let mut payload = Vec::new();
            if let Some(place) = transmit.body {
                host.memory.append(place, length, &mut payload);
            }
            host.node.pop_transmit(port);
            self.carry(link, 1 - end, transmit.carrier, &transmit.header, &payload);
        }
    }

    pub(crate) fn pump_member(&mut self, member: usize) {
        let Some(link) = self.members[member].link else { return };
        loop {
            while self.links[link].is_open[LOWER]
                && self.links[link].takes_more(UPPER, &self.timing)
            {
                let Some(transmit) = self.members[member].endpoint.peek_transmit() else { break };
                let payload = self.members[member].payload(&transmit);
                self.members[member].endpoint.pop_transmit(Time(self.now));
                self.carry(link, UPPER, transmit.carrier, &transmit.header, &payload);
            }
            if !self.members[member].drain_events() {
                break;
            }
            self.put_start(member);
        }
        let state = &self.members[member];
        let is_over = state.has_left && !state.stays || state.knows_end || state.failed.is_some();
        if is_over && state.endpoint.is_drained() {
            self.close(link, LOWER);
        }
    }

    /// Puts a frame on a link, honest or forged.
    pub(crate) fn carry(
        &mut self,
        link: usize,
        to: usize,
        carrier: Carrier,
        header: &Header,
        payload: &[u8],
    ) {
        let frame = frames::encode(header, payload);
        self.hash(&[link as u8, to as u8]);
        self.hash(&self.now.to_le_bytes());
        self.hash(&frame);
        let (links, timing, random) = (&mut self.links[link], &self.timing, &mut self.random);
        let times = match carrier {
            Carrier::Link => links.on_sent(to, self.now, header, timing, random),
            _ => links.on_datagram(to, self.now, header, timing, random),
        };
        for at in times {
            self.put(at, Item::Arrive { link, to, carrier, frame: frame.clone() });
        }
    }

    /// FNV-1a.
    fn hash(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.frames_hash = (self.frames_hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    /// Checks that nothing of any group is left anywhere.
    pub(crate) fn assert_all_is_free(&self, except: &BTreeSet<usize>) {
        for (index, host) in self.nodes.iter().enumerate() {
            if except.contains(&index) {
                continue;
            }
            assert_eq!(host.node.osos_used(), 0, "node {index} holds outstanding operations");
            assert_eq!(host.memory.groups(), 0, "node {index} holds arenas");
            assert_eq!(host.node.streams_waiting(), 0, "node {index} has a stream waiting");
            assert_eq!(host.open_ports(), 0, "node {index} holds links");
            assert_eq!(host.node.poll_timeout(), None, "node {index} waits for something");
        }
    }
}
