//! Aggregation nodes: the machine and what its daemon does around it.

use std::collections::VecDeque;

use tributary_protocol::Carrier;
use tributary_protocol::node::{Event, GroupConfig, Node, NodeConfig, PortId, StreamLimits};
use tributary_wire::control::{GroupInstall, NodeEvent, NodeOrder};
use tributary_wire::frame::{HEADER_BYTES, Header, Message};
use tributary_wire::{Epoch, GroupId};

use super::agenda::{End, Item};
use super::ledger::{Key, LINK_LOST};
use super::link::{EdgeOf, Holder};
use super::memory::Memory;
use super::scenario::NodePlan;
use super::verdict::Violation;
use super::world::{Incoming, OVERDUE_NS, SILENCE_NS, World};

/// How long the children of a new group may take to join.
pub(super) const JOIN_TIMEOUT_NS: u64 = 10_000_000_000;

/// How long a group that the manager wants dropped may still learn from its tree why it failed.
const REMOVAL_GRACE_NS: u64 = 50_000_000;

/// Frames a port may hold beyond one per slot.
const OUTBOX_SPARE: usize = 4;

/// A node and its driver's state.
pub(super) struct NodeHost {
    pub(super) config: NodeConfig,
    pub(super) machine: Node,
    pub(super) memory: Memory,
    pub(super) is_alive: bool,
    /// How often it was started anew.
    pub(super) life: u32,
    /// The link, and the end of it, that each port number stands for.
    ports: Vec<Option<(u32, End)>>,
    timer_at: Option<u64>,
    pub(super) removals: VecDeque<(u64, GroupId, Epoch)>,
    /// Its conversation with the manager.
    pub(super) session: Option<u32>,
    pub(super) inbox: VecDeque<NodeOrder>,
    /// The group for which it is on its way to its parent.
    pub(super) connecting: Option<GroupInstall>,
    /// What it serves, and under which manager's life.
    pub(super) installed: Vec<(GroupId, Key)>,
}

impl NodeHost {
    pub(super) fn new(plan: &NodePlan) -> Self {
        let config = NodeConfig {
            radix_max: plan.radix,
            osos_max: plan.osos,
            groups_max: 64,
            payload_max_bytes: plan.payload_max_bytes,
            join_timeout_ns: JOIN_TIMEOUT_NS,
            streams: StreamLimits::NONE,
        };
        Self {
            config,
            machine: Node::new(config),
            memory: Memory::default(),
            is_alive: true,
            life: 0,
            ports: Vec::new(),
            timer_at: None,
            removals: VecDeque::new(),
            session: None,
            inbox: VecDeque::new(),
            connecting: None,
            installed: Vec::new(),
        }
    }

    /// A process of the same name in its place, with nothing of what it had.
    pub(super) fn start_anew(&mut self, plan: &NodePlan) {
        let life = self.life;
        *self = Self::new(plan);
        self.life = life;
    }

    /// Gives a link's end the lowest free port.
    pub(super) fn plug(&mut self, link: u32, end: End) -> PortId {
        let free = self.ports.iter().position(Option::is_none).unwrap_or(self.ports.len());
        if free == self.ports.len() {
            self.ports.push(None);
        }
        self.ports[free] = Some((link, end));
        PortId(free as u32)
    }

    pub(super) fn links(&self) -> impl Iterator<Item = (u32, End)> {
        self.ports.iter().flatten().copied()
    }

    fn link_at(&self, port: PortId) -> Option<(u32, End)> {
        self.ports.get(port.0 as usize).copied().flatten()
    }
}

impl World<'_> {
    pub(super) fn node(&mut self, node: u32) -> &mut NodeHost {
        &mut self.nodes[node as usize]
    }

    /// Lets a node say what it has to say.
    pub(super) fn pump_node(&mut self, node: u32) {
        loop {
            while let Some(port) = self.node(node).machine.poll_ready() {
                self.flush(node, port);
            }
            let Some(event) = self.node(node).machine.poll_event() else { break };
            self.on_node_event(node, event);
        }
        self.check_node(node);
        let now = self.now;
        let host = self.node(node);
        let due = host.machine.poll_timeout().map(|due| due.0.max(now));
        if let Some(at) = due
            && host.timer_at.is_none_or(|set| at < set)
        {
            host.timer_at = Some(at);
            let life = host.life;
            self.agenda.put(at, Item::NodeTimer { node, life });
        }
    }

    pub(super) fn on_node_timer(&mut self, node: u32, life: u32) {
        let time = self.time();
        let host = self.node(node);
        if host.life != life || !host.is_alive {
            return;
        }
        host.timer_at = None;
        if host.machine.poll_timeout().is_some_and(|due| due <= time) {
            host.machine.handle_timeout(time);
        }
        self.restless_nodes.push(node);
    }

    fn check_node(&mut self, node: u32) {
        let host = self.node(node);
        let (got, max) = (host.machine.osos_used(), host.config.osos_max);
        if got > max {
            let (got, max) = (u64::from(got), u64::from(max));
            self.report(None, Violation::Bound { what: "outstanding operations", got, max });
        }
    }

    fn on_node_event(&mut self, node: u32, event: Event) {
        match event {
            Event::DatagramPeer { port, .. } => {
                if let Some((link, end)) = self.node(node).link_at(port) {
                    self.link(link).takes_datagrams[end as usize] = true;
                }
            }
            Event::Datagrams { port, reach } => {
                let link = self.node(node).link_at(port).map(|(link, _)| link);
                let key = link.and_then(|link| self.edge_key(link));
                self.trace.note(self.now, key, || format!("node {node}: datagrams {reach:?}"));
            }
            Event::Multicast { .. } => {
                unreachable!("no group of the swarm has a multicast address")
            }
            Event::Released(arena) => self.node(node).memory.release(arena),
            Event::Close(port) => self.linger(node, port),
            Event::Formed { group, epoch } => {
                let key = self.installed_key(node, group, epoch);
                self.trace.note(self.now, key, || format!("node {node}: formed"));
            }
            Event::Failed { group, epoch, abort } => {
                let key = self.forget_installed(node, group, epoch);
                let reason = super::verdict::words(abort);
                self.trace.note(self.now, key, || format!("node {node}: failed, {reason}"));
                self.say(node, NodeEvent::Failed { group, epoch, reason });
            }
            Event::Ended { group, epoch } => {
                let key = self.forget_installed(node, group, epoch);
                self.trace.note(self.now, key, || format!("node {node}: ended"));
                self.say(node, NodeEvent::Ended { group, epoch });
            }
        }
    }

    fn installed_key(&self, node: u32, group: GroupId, epoch: Epoch) -> Option<Key> {
        let installed = &self.nodes[node as usize].installed;
        installed.iter().find(|(id, key)| *id == group && key.epoch == epoch).map(|(_, key)| *key)
    }

    fn forget_installed(&mut self, node: u32, group: GroupId, epoch: Epoch) -> Option<Key> {
        let key = self.installed_key(node, group, epoch)?;
        self.node(node).installed.retain(|(_, other)| *other != key);
        Some(key)
    }

    /// The last word over a link is said. The peer is left the time to hear it: a link that is
    /// closed while something is unread is reset, and takes what was on its way with it.
    fn linger(&mut self, node: u32, port: PortId) {
        let Some((link, end)) = self.node(node).link_at(port) else { return };
        self.say_end(link, end);
        let at = self.now + OVERDUE_NS;
        self.link(link).lingers_until[end as usize] = Some(at);
        self.agenda.put(at, Item::LinkOverdue { link, end });
    }

    /// A link over which nobody joined, or whose peer does not close it.
    pub(super) fn on_overdue(&mut self, link: u32, end: End) {
        let entry = &self.links[link as usize];
        let has_lingered = entry.lingers_until[end as usize].is_some_and(|until| until <= self.now);
        let is_unjoined = end == End::Upper && !entry.has_joined;
        if entry.is_open(end) && (has_lingered || is_unjoined) {
            self.close(link, end);
        }
    }

    /// Sends what the machine has for a port, as far as the link takes it.
    pub(super) fn flush(&mut self, node: u32, port: PortId) {
        let Some((link, end)) = self.node(node).link_at(port) else { return };
        let frames_max = self.scenario.network.link_frames;
        self.check_outbox(node, port, link);
        loop {
            let entry = &mut self.links[link as usize];
            let host = &self.nodes[node as usize];
            let Some(transmit) = host.machine.peek_transmit(port) else { return };
            let is_by_link = transmit.carrier == Carrier::Link;
            if is_by_link && !entry.has_room(end.other(), frames_max) {
                entry.is_blocked[end as usize] = true;
                return;
            }
            self.note_sent(link, end, &transmit.header);
            let mut bytes = self.buffer();
            bytes.extend_from_slice(&transmit.header.encode());
            let host = &mut self.nodes[node as usize];
            if let Some(place) = transmit.body {
                bytes.extend_from_slice(host.memory.read(place, transmit.header.payload_bytes()));
            }
            host.machine.pop_transmit(port);
            self.send_by(transmit.carrier, link, end.other(), bytes);
        }
    }

    fn check_outbox(&mut self, node: u32, port: PortId, link: u32) {
        let osos = self.links[link as usize].edge.as_ref().map_or(0, |edge| edge.osos);
        let max = usize::from(2 * osos).next_power_of_two() + OUTBOX_SPARE;
        let got = self.node(node).machine.queued_frames(port);
        if got > max {
            let (got, max) = (got as u64, max as u64);
            self.report(self.edge_key(link), Violation::Bound { what: "queued frames", got, max });
        }
    }

    /// Looks at a frame that a node is about to send.
    fn note_sent(&mut self, link: u32, end: End, header: &Header) {
        let entry = &mut self.links[link as usize];
        let key = entry.edge.as_ref().map(|edge| edge.group);
        match header.message {
            Message::Request(part) => self.check_window(link, part.sequence.0),
            Message::Result(_) if end == End::Upper && entry.has_left => {
                let whom = format!("a child that has left (link {link})");
                self.report(key, Violation::Leak { whom, what: "a result".to_owned() });
            }
            _ => {}
        }
        self.trace.note(self.now, key, || format!("link {link}: {end:?} sends {}", brief(header)));
    }

    /// Counts a request that an honest end is about to send.
    pub(super) fn check_window(&mut self, link: u32, sequence: u32) {
        let entry = &mut self.links[link as usize];
        let max = entry.edge.as_ref().map_or(0, |edge| usize::from(edge.osos));
        let got = entry.on_request(sequence);
        if got > max {
            let (got, max) = (got as u64, max as u64);
            let key = self.edge_key(link);
            self.report(key, Violation::Bound { what: "segments in flight", got, max });
        }
    }

    /// A frame arrives at a node.
    pub(super) fn node_takes(&mut self, node: u32, port: PortId, frame: Incoming<'_>) {
        let Incoming { link, carrier, bytes, is_forged, .. } = frame;
        self.restless_nodes.push(node);
        let Some(header) = self.decode(frame) else { return };
        let time = self.time();
        let host = &mut self.nodes[node as usize];
        let late = host.machine.stats().late;
        let payload = &bytes[HEADER_BYTES..];
        let taken =
            host.machine.handle_frame(time, port, carrier, &header, payload, &mut host.memory);
        let is_late = host.machine.stats().late != late;
        match taken {
            Err(error) => self.on_refused(frame, &error.to_string()),
            Ok(()) => {
                let entry = self.link(link);
                entry.has_joined = true;
                match header.message {
                    Message::Leave => entry.has_left = true,
                    Message::Result(part) => entry.on_result(part.sequence.0),
                    _ => {}
                }
                if is_forged && !is_late {
                    let what = brief(&header);
                    self.report(self.edge_key(link), Violation::ForgeryAccepted { what });
                }
            }
        }
    }

    /// Reads a frame's header. What is no frame is refused.
    pub(super) fn decode(&mut self, frame: Incoming<'_>) -> Option<Header> {
        match Header::decode(frame.bytes) {
            Ok(header) if frame.bytes.len() == HEADER_BYTES + header.payload_bytes() => {
                Some(header)
            }
            Ok(_) => {
                self.on_refused(frame, "its length is not what it says");
                None
            }
            Err(error) => {
                self.on_refused(frame, &error.to_string());
                None
            }
        }
    }

    /// A node, or a member, refused a frame: it closes the link, or drops the datagram.
    pub(super) fn on_refused(&mut self, frame: Incoming<'_>, error: &str) {
        let Incoming { link, to: end, carrier, is_forged, .. } = frame;
        let key = self.edge_key(link);
        self.trace.note(self.now, key, || format!("link {link}: {end:?} refuses: {error}"));
        if carrier == Carrier::Datagram {
            return;
        }
        let is_tampered = is_forged || self.links[link as usize].is_tampered;
        let is_blamed =
            key.and_then(|key| self.ledger.find(key)).is_some_and(|it| !it.blames.is_empty());
        if !is_tampered && !is_blamed {
            let group = key.map_or_else(String::new, |key| key.to_string());
            self.report(key, Violation::HonestRefused { group, error: error.to_owned() });
        }
        self.refuse(link, end);
    }

    /// A node's end of a link is gone.
    pub(super) fn node_unplugs(&mut self, node: u32, port: PortId, is_refused: bool) {
        let host = self.node(node);
        host.ports[port.0 as usize] = None;
        if is_refused {
            host.machine.handle_port_refused(port);
        } else {
            host.machine.handle_port_closed(port);
        }
        self.restless_nodes.push(node);
    }

    /// Takes part in a group, and answers.
    pub(super) fn install(&mut self, node: u32, install: GroupInstall, parent: Option<u32>) {
        self.remove_due(node, u64::MAX);
        let (group, epoch) = (install.group, install.epoch);
        let session = self.node(node).session.expect("orders come over a conversation");
        let key = Key { life: self.sessions[session as usize].life, epoch };
        let port = parent.map(|parent| self.connect_upward(node, parent, &install, key));
        let time = self.time();
        match self.node(node).machine.install(time, GroupConfig::of_order(install, port)) {
            Ok(arena) => {
                let host = self.node(node);
                host.memory.add(arena);
                host.installed.push((group, key));
                self.trace.note(self.now, Some(key), || format!("node {node}: installed"));
                self.say(node, NodeEvent::Installed { group, epoch });
            }
            Err(error) => {
                let error = error.to_string();
                let name = self.scenario.nodes[node as usize].name.clone();
                let refused = Violation::InstallRefused { node: name, error: error.clone() };
                self.report(Some(key), refused);
                self.say(node, NodeEvent::Refused { group, epoch, reason: error });
            }
        }
        self.restless_nodes.push(node);
    }

    fn connect_upward(
        &mut self,
        node: u32,
        parent: u32,
        install: &GroupInstall,
        key: Key,
    ) -> PortId {
        let place = install.parent.as_ref().expect("only a node with a parent connects");
        let below = self.ledger.entry(key).members_below(parent, place.child.0);
        let below = below.expect("the parent was ordered first");
        let below = below.start.0..below.end.0;
        let edge = EdgeOf { group: key, below, osos: install.osos };
        let link = self.links.len() as u32;
        let port = self.node(node).plug(link, End::Lower);
        let lower = (Holder::Node { node, port }, self.node_machine(node));
        self.connect(lower, parent, Some(edge));
        port
    }

    pub(super) fn on_removals(&mut self, node: u32, life: u32) {
        if self.node(node).life == life && self.node(node).is_alive {
            let now = self.now;
            self.remove_due(node, now);
        }
    }

    /// Drops the groups whose time is over.
    fn remove_due(&mut self, node: u32, until: u64) {
        let now = self.now;
        while let Some((due, group, epoch)) =
            self.node(node).removals.pop_front_if(|(due, ..)| *due <= until)
        {
            if due > now
                && let Some(key) = self.installed_key(node, group, epoch)
            {
                // Its number is wanted again, so it can't wait for its tree's own words.
                self.ledger.entry(key).may_withdraw = true;
            }
            self.node(node).machine.withdraw(group, epoch);
            self.pump_node(node);
        }
    }

    pub(super) fn put_removal(&mut self, node: u32, group: GroupId, epoch: Epoch) {
        let at = self.now + REMOVAL_GRACE_NS;
        let host = self.node(node);
        host.removals.push_back((at, group, epoch));
        let life = host.life;
        self.agenda.put(at, Item::Removals { node, life });
    }

    /// Drops every group, telling its children and parents.
    pub(super) fn remove_all(&mut self, node: u32) {
        self.node(node).removals.clear();
        let now = self.now;
        for (group, key) in self.node(node).installed.clone() {
            self.ledger.entry(key).blame_manager(now);
            self.node(node).machine.withdraw(group, key.epoch);
        }
        self.pump_node(node);
    }

    /// A node's process is gone. What its peers have to go by depends on how.
    pub(super) fn crash_node(&mut self, node: u32, is_silent: bool, down_ns: u64) {
        let now = self.now;
        let delay_ns = self.delay_ns();
        let noticed_at = if is_silent { now + shows_after_ns(down_ns) } else { now + delay_ns };
        for entry in self.ledger.all() {
            if let Some(members) = entry.members_at(node) {
                entry.blame(noticed_at, LINK_LOST, members);
                entry.blame_manager(noticed_at);
            }
        }
        let links: Vec<(u32, End)> = self.node(node).links().collect();
        for (link, end) in links {
            if is_silent {
                self.vanish(link, end, noticed_at);
            } else {
                self.die(link, end);
            }
        }
        let host = self.node(node);
        (host.is_alive, host.life) = (false, host.life + 1);
        if let Some(session) = host.session.take() {
            let at_manager = true;
            self.agenda.put(noticed_at, Item::SessionOver { node, session, at_manager });
        }
        self.agenda.put(now + down_ns, Item::NodeStarts { node });
    }

    pub(super) fn start_node(&mut self, node: u32) {
        let plan = &self.scenario.nodes[node as usize];
        self.node(node).start_anew(plan);
        self.equip(node);
        let life = self.node(node).life;
        let at = self.now + self.delay_ns();
        self.trace.note(self.now, None, || format!("node {node} starts again"));
        self.agenda.put(at, Item::Register { node, life });
    }
}

/// When a silent death shows: once its peers have waited long enough, or when the machine is up
/// again and denies what it knows nothing of.
fn shows_after_ns(down_ns: u64) -> u64 {
    SILENCE_NS.min(down_ns)
}

/// A frame in a few words.
pub(super) fn brief(header: &Header) -> String {
    match header.message {
        Message::Request(part) => {
            format!(
                "request {} of operation {}, {} {}",
                part.sequence.0,
                part.operation,
                part.shape.elements(),
                part.shape.operator().name()
            )
        }
        Message::Result(part) => format!("result {}", part.sequence.0),
        Message::Held { sequence, .. } => format!("held {}", sequence.0),
        Message::Missing { sequence } => format!("missing {}", sequence.0),
        Message::Abort(abort) => format!("abort: {}", super::verdict::words(abort)),
        other => format!("{other:?}").to_lowercase(),
    }
}
