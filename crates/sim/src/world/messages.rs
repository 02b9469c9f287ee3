//! How messages travel between ranks.

use super::event::Event;
use super::ids::{RankId, TransferId};
use super::packet::{Cargo, Packet};
use super::payload::Data;
use super::rank::Incoming;
use super::state::World;
use super::transfer::{Label, MessageProtocol, PacketKind, Transfer};
use crate::engine::Picos;
use crate::fabric::Vertex;

impl<D: Data> World<D> {
    /// Sends a message. Returns when the core is done.
    pub(super) fn send_message(
        &mut self,
        from: RankId,
        to: RankId,
        bytes: u32,
        label: Label,
        at: Picos,
    ) -> Picos {
        let process = self.ranks[from.index()].process;
        let (here, there) = (self.host_of(process), self.host_of(self.ranks[to.index()].process));
        let costs = self.costs.message;
        let is_graph = self.ranks[from.index()].graph.is_some();
        let protocol = if here == there {
            MessageProtocol::SharedMemory
        } else if let Some(frame_max) = costs.frame_max_bytes {
            // A task of a graph takes a message as a whole.
            let is_long = bytes > frame_max && !is_graph;
            if is_long { MessageProtocol::Stream } else { MessageProtocol::Eager }
        } else if bytes <= costs.eager_max_bytes {
            MessageProtocol::Eager
        } else {
            MessageProtocol::Rendezvous
        };
        let transfer =
            Transfer { from, to, bytes, protocol, left_bytes: bytes, written_at: at, label };
        let id = self.transfers.put(transfer);
        match protocol {
            MessageProtocol::SharedMemory => {
                let done_at = self.work(process, at, costs.share.of(bytes));
                self.events.schedule(done_at + costs.line, Event::Share(id));
                done_at
            }
            MessageProtocol::Eager => {
                let inline = self.inline_cost(bytes);
                let done_at = self.work(process, at, costs.send.of(bytes) + inline);
                self.send_part(id, done_at);
                done_at
            }
            MessageProtocol::Stream => {
                let frame = self.frame_bytes();
                let mut done_at = self.work(process, at, costs.send.of(frame));
                self.transfers.places[id.0 as usize].written_at = done_at;
                self.send_part(id, done_at);
                let mut left = bytes - frame;
                while left > 0 {
                    let piece = left.min(frame);
                    done_at = self.work(process, done_at, costs.send.of(piece));
                    left -= piece;
                }
                done_at
            }
            MessageProtocol::Rendezvous => {
                self.ranks[from.index()].unanswered += 1;
                let done_at = self.work(process, at, costs.register + costs.send.of(0));
                self.send_control(id, here, there, PacketKind::RequestToSend, done_at);
                done_at
            }
        }
    }

    /// The time that a core takes to write a short message into the adapter itself.
    pub(super) fn inline_cost(&self, bytes: u32) -> Picos {
        let adapter = &self.costs.adapter;
        if bytes <= adapter.inline_max_bytes { adapter.inline_byte.of(bytes) } else { Picos::ZERO }
    }

    fn send_control(
        &mut self,
        id: TransferId,
        from: Vertex,
        to: Vertex,
        kind: PacketKind,
        at: Picos,
    ) {
        let cargo = Cargo::Message { transfer: id, kind };
        let packet = Packet { from, at: from, to, bytes: 0, cargo };
        self.events.schedule(at, Event::Post(packet));
    }

    /// The longest frame of a stream.
    fn frame_bytes(&self) -> u32 {
        self.costs.message.frame_max_bytes.expect("only streams have frames")
    }

    /// Posts the next packet of a message to the adapter. A frame begins with a packet of its own.
    fn send_part(&mut self, id: TransferId, at: Picos) {
        let Transfer { from, to, bytes: whole, protocol, left_bytes, .. } = self.transfers.at(id);
        let (here, there) = (self.host_of_rank(from), self.host_of_rank(to));
        let mut bytes = left_bytes.min(self.costs.mtu_bytes);
        let mut frame_bytes = None;
        if protocol == MessageProtocol::Stream {
            let (frame, sent) = (self.frame_bytes(), whole - left_bytes);
            let begun = sent % frame;
            bytes = bytes.min(frame - begun);
            let is_end = begun + bytes == frame || bytes == left_bytes;
            frame_bytes = is_end.then_some(begun + bytes);
        }
        let left_bytes = left_bytes - bytes;
        self.transfers.places[id.0 as usize].left_bytes = left_bytes;
        let kind = PacketKind::Data { is_last: left_bytes == 0, frame_bytes };
        let cargo = Cargo::Message { transfer: id, kind };
        let packet = Packet { from: here, at: here, to: there, bytes, cargo };
        self.events.schedule(at, Event::Post(packet));
    }

    /// A packet of a message is on the wire until `wire_free_at`. The next one follows without a gap,
    /// because the adapter prefetches it.
    pub(super) fn part_sent(&mut self, id: TransferId, kind: PacketKind, wire_free_at: Picos) {
        if matches!(kind, PacketKind::Data { is_last: false, .. }) {
            let ahead =
                self.costs.adapter.transmit + self.costs.adapter.fetch.of(self.costs.mtu_bytes);
            let at = wire_free_at.since(ahead).max(self.events.now());
            self.send_part(id, at.max(self.written_at(id)));
        }
    }

    /// When the sender's core has written the next byte of a message.
    fn written_at(&self, id: TransferId) -> Picos {
        let Transfer { bytes, protocol, left_bytes, written_at, .. } = self.transfers.at(id);
        if protocol != MessageProtocol::Stream {
            return written_at;
        }
        let frame = self.frame_bytes();
        let further = (bytes - left_bytes) / frame;
        written_at + Picos(self.costs.message.send.of(frame).0 * u64::from(further))
    }

    /// A packet of a message can be seen at its receiver.
    pub(super) fn message_receives(&mut self, seen_at: Picos, id: TransferId, kind: PacketKind) {
        let Transfer { to, protocol, .. } = self.transfers.at(id);
        match (kind, protocol) {
            (PacketKind::RequestToSend, _) => {
                let process = self.ranks[to.index()].process;
                let noticed_at = self.work(process, seen_at, self.costs.message.control);
                self.message_begins(to, self.incoming(id, None), noticed_at);
            }
            (PacketKind::ClearToSend, _) => self.read_remote(id),
            (PacketKind::Data { frame_bytes: Some(bytes), is_last }, _) => {
                let frame = Incoming { bytes, is_last, ..self.incoming(id, Some(seen_at)) };
                self.message_begins(to, frame, seen_at);
            }
            (PacketKind::Data { is_last: false, .. }, _) => {}
            (PacketKind::Data { is_last: true, .. }, MessageProtocol::Rendezvous) => {
                self.message_ends(to, id, seen_at)
            }
            (PacketKind::Data { is_last: true, .. }, _) => {
                self.message_begins(to, self.incoming(id, Some(seen_at)), seen_at);
            }
        }
    }

    /// A message through shared memory has arrived.
    pub(super) fn receive_shared(&mut self, id: TransferId) {
        let now = self.events.now();
        let Transfer { to, .. } = self.transfers.at(id);
        self.message_begins(to, self.incoming(id, Some(now)), now);
    }

    /// A message as its receiver sees it: all of it, or none if it is not there yet.
    fn incoming(&self, id: TransferId, seen_at: Option<Picos>) -> Incoming {
        let Transfer { from, bytes, .. } = self.transfers.at(id);
        Incoming { from, transfer: id, seen_at, taken_by: None, bytes, is_last: true }
    }

    /// The receiver of a rendezvous message tells the sender that it is ready.
    pub(super) fn answer(&mut self, rank: RankId, id: TransferId, at: Picos) -> Picos {
        let costs = self.costs.message;
        let process = self.ranks[rank.index()].process;
        let done_at = self.work(process, at, costs.register + costs.send.of(0));
        let to = self.host_of_rank(self.transfers.at(id).from);
        self.send_control(id, self.host_of_rank(rank), to, PacketKind::ClearToSend, done_at);
        done_at
    }

    /// The receiver reads a rendezvous message from the sender's memory, without the sender's core.
    fn read_remote(&mut self, id: TransferId) {
        let Transfer { from, label, .. } = self.transfers.at(id);
        let now = self.events.now();
        self.send_part(id, now);
        self.ranks[from.index()].unanswered -= 1;
        self.message_taken(from, label, now);
    }

    /// The cost of receiving a message, or a frame of it, on the receiver's core.
    pub(super) fn landing_cost(&self, incoming: Incoming, is_folded: bool) -> Picos {
        let bytes = incoming.bytes;
        let Transfer { protocol, .. } = self.transfers.at(incoming.transfer);
        let costs = &self.costs.message;
        let taking = match protocol {
            MessageProtocol::Eager | MessageProtocol::Stream => costs.receive.of(bytes),
            MessageProtocol::Rendezvous => costs.receive_cold.of(bytes),
            MessageProtocol::SharedMemory => costs.share.of(bytes),
        };
        if is_folded { taking + costs.reduce.of(bytes) } else { taking }
    }

    pub(super) fn label_of(&self, id: TransferId) -> Label {
        self.transfers.at(id).label
    }

    /// Whether the sender waits until the receiver has asked for the message.
    pub(super) fn is_rendezvous(&self, from: RankId, to: RankId, bytes: u32) -> bool {
        self.costs.message.frame_max_bytes.is_none()
            && self.host_of_rank(from) != self.host_of_rank(to)
            && bytes > self.costs.message.eager_max_bytes
    }

    pub(super) fn end_transfer(&mut self, id: TransferId) {
        self.transfers.free.push(id.0);
    }

    fn host_of_rank(&self, rank: RankId) -> Vertex {
        self.host_of(self.ranks[rank.index()].process)
    }
}
