//! Hosts, adapters, aggregation nodes and processes on a network, and the events between them.
//!
//! Owns every machine of a simulated system, and the cost of its actions. The protocol itself is the
//! real one: aggregation nodes are [`tributary_protocol::node::Node`]s, members are
//! [`tributary_protocol::endpoint::Endpoint`]s, ranks in replicated groups are [`tributary_replicated::Levels`], and
//! messages follow [`tributary_algorithms::Schedule`]s. This module carries their frames over the [`Network`] and
//! charges the time. Start at [`World::run`].

mod aggregation;
mod aggregator;
mod collectives;
mod cores;
mod cost;
mod datagrams;
mod event;
mod forming;
mod frames;
mod graph;
mod group;
mod host;
mod ids;
mod losses;
mod member;
mod membership;
mod messages;
mod multicast;
mod notices;
mod outcome;
mod packet;
mod payload;
mod rank;
mod replicated;
mod site;
mod state;
mod tasks;
mod transfer;
mod work;

pub use cost::Costs;
pub use graph::{Graph, Node, Task};
pub use group::{ChildPlan, GroupPlan, NodePlan, SetupError, Terms};
pub use ids::{AggregatorId, MemberId, ProcessId, RankId};
pub use outcome::{Finished, RunError};
pub use payload::{Data, NoPayload, RealPayload};
pub use rank::{HostCollective, RankFinished, Team};
pub use site::{ManagedNode, Site};
pub use state::World;

use crate::engine::{EventQueue, Picos, Random};
use crate::fabric::{Flow, Network, Vertex, Wiring};
use crate::preset::Preset;
use cores::Cores;
use event::{Event, Way};
use frames::Frames;
use host::Adapter;
use losses::{Arrival, Losses};
use multicast::DatagramTerms;
use notices::Notices;
use packet::{Cargo, Packet, Packets};
use transfer::Transfers;

impl<D: Data> World<D> {
    /// An idle system on `wiring`.
    #[must_use]
    pub fn new(preset: &Preset, wiring: Wiring, seed: u64) -> Self {
        let adapters = vec![Adapter::default(); wiring.hosts() as usize];
        let costs = Costs::new(preset);
        Self {
            events: EventQueue::default(),
            network: Network::new(wiring, preset.routing, preset.network_cost()),
            cores: Cores::new(costs.machine.as_ref()),
            costs,
            losses: Losses::default(),
            datagrams: DatagramTerms::of(preset),
            uses_datagrams: false,
            random: Random::new(seed),
            frames: Frames::default(),
            adapters,
            processes: Vec::new(),
            aggregators: Vec::new(),
            members: Vec::new(),
            groups: Vec::new(),
            finished: Vec::new(),
            ranks: Vec::new(),
            transfers: Transfers::default(),
            notices: Notices::default(),
            ranks_finished: Vec::new(),
            joined: 0,
            fault: None,
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.events.now()
    }

    /// Events processed so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.events_taken()
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Packets lost so far.
    #[must_use]
    pub fn lost_packets(&self) -> u64 {
        self.losses.count()
    }

    /// Runs until no event is left.
    ///
    /// # Errors
    /// [`RunError`]; the system can't be used afterwards.
    pub fn run(&mut self) -> Result<(), RunError> {
        while self.step()? {}
        Ok(())
    }

    /// Handles the next event. Returns whether there was one.
    ///
    /// # Errors
    /// As [`World::run`].
    pub fn step(&mut self) -> Result<bool, RunError> {
        let Some(event) = self.events.take() else { return Ok(false) };
        match event {
            Event::Post(packet) => self.post(packet),
            Event::Hop(packet) => self.hop(packet),
            Event::Arrive(packet) => self.arrive(packet),
            Event::ArriveLate(packet) => self.receive(packet),
            Event::MemberTimer(member) => self.member_timer(member),
            Event::NodeTimer(aggregator) => self.node_timer(aggregator),
            Event::Emit(packet) => self.emit(packet),
            Event::Begin(member) => self.begin(member),
            Event::Enter(rank) => self.start_collective(rank),
            Event::Share(transfer) => self.receive_shared(transfer),
            Event::Resume(rank) => self.resume(rank),
            Event::Contribute(rank, bytes) => self.contribute(rank, bytes),
            Event::Notice(notice) => self.see_notice(notice),
            Event::TakeNotices(rank) => self.take_notices(rank),
            Event::GroupTimer(rank) => self.group_timer(rank),
        }
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(true),
        }
    }

    /// Whether an operation has finished that nobody has taken.
    #[must_use]
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty() || !self.ranks_finished.is_empty()
    }

    /// The operations that finished since the last call.
    pub fn take_finished(&mut self) -> std::vec::Drain<'_, Finished> {
        self.finished.drain(..)
    }

    /// The adapter takes a packet from a core and puts it on the wire.
    fn post(&mut self, packet: Packet) {
        let now = self.events.now();
        if packet.is_local() {
            self.events.schedule(now + self.costs.message.line, Event::Arrive(packet));
            return;
        }
        for (packet, fetched_bytes) in self.packets_of(packet) {
            let adapter = &mut self.adapters[packet.at.0 as usize];
            let ready = adapter.transmit(&self.costs, now, fetched_bytes);
            let wire_free_at = self.forward(packet, ready);
            if let Cargo::Message { transfer, kind } = packet.cargo {
                self.part_sent(transfer, kind, wire_free_at);
            }
        }
    }

    /// The packets of a frame that is longer than one may be, or what already is one.
    fn packets_of(&mut self, whole: Packet) -> Packets {
        let mtu_bytes = self.costs.mtu_bytes;
        if let Some(frame) = whole.frame() {
            self.frames.share_among(frame, Packets::count(whole.bytes, mtu_bytes) - 1);
        }
        Packets::new(whole, mtu_bytes)
    }

    /// An aggregation node sends a frame through its switch, or through its host's adapter.
    fn emit(&mut self, packet: Packet) {
        match (packet.at.0 < self.network.wiring().hosts(), packet.is_multicast()) {
            (true, true) => self.post_multicast(packet),
            (true, false) => self.post(packet),
            (false, _) => self.packets_of(packet).for_each(|(packet, _)| self.hop(packet)),
        }
    }

    fn hop(&mut self, packet: Packet) {
        if let Cargo::Multicast { notice, receivers } = packet.cargo {
            self.split(packet, notice, receivers);
        } else if packet.at == packet.to {
            self.replicate(packet);
        } else {
            self.forward(packet, self.events.now());
        }
    }

    /// Sends a packet over its next link. Returns when its last byte is on the wire.
    fn forward(&mut self, mut packet: Packet, ready: Picos) -> Picos {
        let flow = Flow { from: packet.from, to: packet.to };
        let step = self.network.forward(ready, packet.at, flow, packet.bytes);
        packet.at = step.to;
        if step.to == packet.to && !packet.is_multicast() {
            self.events.schedule(step.tail_at, Event::Arrive(packet));
        } else {
            self.events.schedule(step.head_at, Event::Hop(packet));
        }
        step.left_at
    }

    fn arrive(&mut self, packet: Packet) {
        let arrival = match self.costs.loss {
            Some(costs) if !packet.is_local() => {
                self.losses.draw(costs, &mut self.random, &packet, self.events.now())
            }
            _ => Arrival::Now,
        };
        match arrival {
            Arrival::Now => self.receive(packet),
            Arrival::At(at) => self.events.schedule(at, Event::ArriveLate(packet)),
            Arrival::Never => match packet.cargo {
                Cargo::Notice { notice, .. } => drop(self.notices.take(notice)),
                _ => {
                    let frame = packet.frame().expect("only frames and notices go in datagrams");
                    self.frames.take(frame);
                }
            },
        }
    }

    fn receive(&mut self, packet: Packet) {
        let now = self.events.now();
        let hosts = self.network.wiring().hosts();
        let seen_at = if packet.to.0 < hosts && !packet.is_local() {
            self.adapters[packet.to.0 as usize].receive(&self.costs, now, packet.bytes)
        } else {
            now
        };
        match packet.cargo {
            Cargo::ToNode { frame, is_last: false, .. }
            | Cargo::ToMember { frame, is_last: false, .. } => drop(self.frames.take(frame)),
            Cargo::ToNode { aggregator, port, frame, carrier, .. } => {
                let frame = self.frames.take(frame);
                let way = Way { carrier, is_local: packet.is_local() };
                self.node_receives(seen_at, aggregator, port, frame, way);
            }
            Cargo::ToMember { member, frame, carrier, .. } => {
                let frame = self.frames.take(frame);
                let way = Way { carrier, is_local: packet.is_local() };
                self.member_receives(seen_at, member, &frame, way);
            }
            Cargo::Message { transfer, kind } => self.message_receives(seen_at, transfer, kind),
            Cargo::Notice { notice, .. } => self.notice_receives(seen_at, notice),
            Cargo::Copy { .. } | Cargo::Multicast { .. } => {
                unreachable!("a multicast is copied, not delivered")
            }
        }
    }

    fn host_of(&self, process: ProcessId) -> Vertex {
        self.processes[process.index()].host
    }
}
