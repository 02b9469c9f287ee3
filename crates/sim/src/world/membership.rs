//! What members do: they begin operations, and take results.

use super::event::{Event, Way, time_at};
use super::frames::Frame;
use super::ids::{AggregatorId, MemberId, ProcessId};
use super::member::Member;
use super::outcome::{Finished, RunError};
use super::packet::{Cargo, Packet};
use super::payload::Data;
use super::state::World;
use crate::engine::Picos;
use tributary_protocol::Carrier;
use tributary_protocol::endpoint::{
    Endpoint, EndpointConfig, Event as EndpointEvent, OperationSpec,
};
use tributary_protocol::node::PortId;
use tributary_wire::EndpointId;
use tributary_wire::frame::Header;

impl<D: Data> World<D> {
    /// The number of the next member.
    pub(super) fn next_member(&self) -> MemberId {
        MemberId(self.members.len() as u32)
    }

    pub(super) fn add_member(
        &mut self,
        process: ProcessId,
        aggregator: AggregatorId,
        port: PortId,
        config: EndpointConfig,
    ) -> MemberId {
        let id = self.next_member();
        let edge = config.edge();
        let number = config.endpoint;
        self.members.push(Member {
            endpoint: Endpoint::new(config),
            number,
            edge,
            host: self.host_of(process),
            process,
            aggregator,
            vertex: self.aggregators[aggregator.index()].vertex,
            port,
            spec: OperationSpec::BARRIER,
            is_stream: false,
            began_at: Picos::ZERO,
            timer_at: None,
            vector: D::Vector::default(),
        });
        let is_local = self.members[id.index()].host == self.members[id.index()].vertex;
        self.offer_datagrams(id, edge, is_local);
        self.drain_member(id, self.events.now());
        id
    }

    /// The number of a member in its group.
    #[must_use]
    pub fn endpoint_of(&self, member: MemberId) -> EndpointId {
        self.members[member.index()].number
    }

    /// Starts an operation of a member at `at`.
    pub fn start(&mut self, member: MemberId, at: Picos, spec: OperationSpec) {
        self.start_as(member, at, spec, false);
    }

    /// Starts an operation of a member at `at` whose vector goes as a stream, all of which is ready then.
    pub fn start_stream(&mut self, member: MemberId, at: Picos, spec: OperationSpec) {
        self.start_as(member, at, spec, true);
    }

    fn start_as(&mut self, id: MemberId, at: Picos, spec: OperationSpec, is_stream: bool) {
        let member = &mut self.members[id.index()];
        (member.spec, member.is_stream) = (spec, is_stream);
        self.events.schedule(at, Event::Begin(id));
    }

    /// The vector of a member: its contribution, then the result.
    pub fn vector_mut(&mut self, member: MemberId) -> &mut D::Vector {
        &mut self.members[member.index()].vector
    }

    /// Duplicate results that were dropped, over all members.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.members.iter().map(|member| member.endpoint.repeats()).sum()
    }

    pub(super) fn begin(&mut self, id: MemberId) {
        let now = self.events.now();
        let member = &mut self.members[id.index()];
        member.began_at = now;
        let (process, spec) = (member.process, member.spec);
        let started = if member.is_stream {
            member.endpoint.start_stream(spec, usize::MAX)
        } else {
            member.endpoint.start(spec)
        };
        if let Err(fault) = started {
            self.fault = Some(RunError::Start { member: id.0, fault });
            return;
        }
        let called_at = self.work(process, now, self.costs.tree.call);
        self.drain_member(id, called_at);
    }

    pub(super) fn member_receives(
        &mut self,
        seen_at: Picos,
        id: MemberId,
        frame: &Frame<D::Piece>,
        way: Way,
    ) {
        let tree = self.costs.tree;
        let now = time_at(self.events.now());
        let member = &mut self.members[id.index()];
        let process = member.process;
        let edge = Self::edge_of(member.edge, way.carrier);
        let header = Header { edge, message: frame.message };
        let repeats = member.endpoint.repeats();
        let body = match member.endpoint.handle_frame(now, way.carrier, &header) {
            Ok(body) => body,
            // What a datagram says is dropped if anything is wrong with it.
            Err(_) if way.carrier != Carrier::Link => None,
            Err(fault) => {
                self.fault = Some(RunError::Member { member: id.0, fault });
                return;
            }
        };
        let is_repeat = member.endpoint.repeats() > repeats;
        let bytes = header.payload_bytes() as u32;
        if let Some(body) = body {
            D::fill(&mut member.vector, body.bytes, &frame.piece);
        }
        let cost = match (way.is_local, is_repeat) {
            (true, _) => self.costs.message.share.of(bytes),
            (false, true) => tree.repeat,
            (false, false) => tree.result.of(bytes),
        };
        // The first line arrives with the completion; each further one is a read of memory.
        let lines = bytes.saturating_sub(1) / tree.notice_max_bytes.max(1);
        let fetching = if is_repeat || way.is_local { 0 } else { u64::from(lines) };
        let found_at = seen_at + Picos(tree.line_read.0 * fetching);
        let done_at = self.work(process, found_at, cost);
        let member = &mut self.members[id.index()];
        while let Some(event) = member.endpoint.poll_event() {
            match event {
                EndpointEvent::Completed(_) => {
                    let began_at = member.began_at;
                    self.finished.push(Finished { member: id, began_at, ended_at: done_at });
                }
                EndpointEvent::Joined => self.joined += 1,
                EndpointEvent::Failed(abort) => {
                    self.fault = Some(RunError::Failed { member: id.0, abort });
                }
                // The machine acts on it by itself.
                EndpointEvent::DatagramPeer(_)
                | EndpointEvent::Datagrams(_)
                | EndpointEvent::Multicast(_)
                | EndpointEvent::AllHaveLeft => {}
            }
        }
        self.drain_member(id, done_at);
    }

    /// Sends all frames that the machine has now.
    pub(super) fn drain_member(&mut self, id: MemberId, from: Picos) {
        let mut at_time = from;
        while let Some(transmit) = self.members[id.index()].endpoint.peek_transmit() {
            let bytes = transmit.header.payload_bytes() as u32;
            let member = &mut self.members[id.index()];
            let piece = match transmit.body {
                Some(body) => D::part(&member.vector, body.bytes),
                None => D::Piece::default(),
            };
            let Member { edge, host, vertex, process, aggregator, port, .. } = *member;
            debug_assert_eq!(transmit.header.edge, edge, "a link carries one edge");
            let cost = if host == vertex {
                self.costs.message.share.of(bytes)
            } else {
                self.costs.tree.request.of(bytes) + self.inline_cost(bytes)
            };
            at_time = self.work(process, at_time, cost);
            self.members[id.index()].endpoint.pop_transmit(time_at(at_time));
            let carrier = transmit.carrier;
            let frame = self.frames.add(transmit.header.message, piece);
            let cargo = Cargo::ToNode { aggregator, port, frame, carrier, is_last: true };
            let packet = Packet { from: host, at: host, to: vertex, bytes, cargo };
            self.events.schedule(at_time, Event::Post(packet));
        }
        self.set_member_timer(id);
    }
}
