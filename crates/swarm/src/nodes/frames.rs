//! Frames to and from aggregators.

use tributary_kernel_path::Arrival;
use tributary_protocol::Carrier;
use tributary_protocol::node::PortId;
use tributary_protocol_testing::{InFlight, frames};
use tributary_wire::frame::{Header, Message};

use crate::agenda::End;
use crate::verdict::{Violation, words};
use crate::world::{Incoming, World};

impl World<'_> {
    /// Sends the machine's frames for a port, as far as the link takes them.
    pub(crate) fn flush(&mut self, node: u32, port: PortId) {
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
            self.note_sent(node, link, end, &transmit.header);
            let mut bytes = self.buffer();
            bytes.extend_from_slice(&transmit.header.encode());
            let host = &mut self.nodes[node as usize];
            if let Some(place) = transmit.body {
                host.memory.append(place, transmit.header.payload_bytes(), &mut bytes);
            }
            host.machine.pop_transmit(port);
            self.send_by(transmit.carrier, link, end.other(), bytes);
        }
    }

    fn check_outbox(&mut self, node: u32, port: PortId, link: u32) {
        // As many datagrams may wait as frames for the link.
        let max = self.links[link as usize].edge.as_ref().map_or(0, |edge| 2 * edge.queued_max);
        let got = self.node(node).machine.queued_frames(port);
        if got > max {
            let (got, max) = (got as u64, max as u64);
            self.report(self.edge_key(link), Violation::Bound { what: "queued frames", got, max });
        }
    }

    /// Checks a frame that an aggregator is about to send.
    pub(crate) fn note_sent(&mut self, node: u32, link: u32, end: End, header: &Header) {
        let entry = &mut self.links[link as usize];
        let key = entry.edge.as_ref().map(|edge| edge.group);
        let is_result = matches!(header.message, Message::Result(_) | Message::ChunkResult(_));
        if is_result && end == End::Upper && entry.has_left {
            let whom = format!("a child that has left (link {link})");
            self.report(key, Violation::Leak { whom, what: "a result".to_owned() });
        }
        self.count_sent(link, &header.message);
        if let Message::StreamGrant(_) = header.message {
            self.node(node).locks.on_announced(header.edge.epoch);
        }
        self.trace.note(self.now, key, || format!("link {link}: {end:?} sends {}", brief(header)));
    }

    /// Counts a request that an honest end is about to send.
    pub(crate) fn count_sent(&mut self, link: u32, message: &Message) {
        let entry = &mut self.links[link as usize];
        let Some(edge) = &entry.edge else { return };
        let (what, max, got) = match entry.windows.on_sent(message) {
            Some(InFlight::Segments(got)) => ("segments in flight", edge.windows[0], got),
            Some(InFlight::Chunks(got)) => ("chunks in flight", edge.windows[1], got),
            None => return,
        };
        let max = usize::from(max);
        if got > max {
            let (got, max) = (got as u64, max as u64);
            let key = self.edge_key(link);
            self.report(key, Violation::Bound { what, got, max });
        }
    }

    /// A frame arrives at an aggregator.
    pub(crate) fn node_takes(&mut self, node: u32, port: PortId, frame: Incoming<'_>) {
        let Incoming { link, carrier, is_forged, .. } = frame;
        self.restless_nodes.push(node);
        if carrier == Carrier::Datagram && !self.passes_kernel_path(node, frame) {
            return;
        }
        let Some((header, payload)) = self.decode(frame) else { return };
        let time = self.time_at(self.node_machine(node));
        let host = &mut self.nodes[node as usize];
        let late = host.machine.stats().late;
        let taken = host.hand(Arrival { now: time, port, carrier, header: &header, payload });
        let is_late = host.machine.stats().late != late;
        match taken {
            Err(error) => self.on_refused(frame, &error.to_string()),
            Ok(()) => {
                let entry = self.link(link);
                entry.has_joined = true;
                // What comes after the group has failed is dropped, from every sender.
                entry.has_left |= header.message == Message::Leave && !is_late;
                entry.windows.on_taken(&header.message);
                self.node(node).locks.on_taken(link, &header);
                if is_forged && !is_late {
                    let what = brief(&header);
                    self.report(self.edge_key(link), Violation::ForgeryAccepted { what });
                }
            }
        }
    }

    /// Decodes a frame. Invalid bytes are refused.
    pub(crate) fn decode<'a>(&mut self, frame: Incoming<'a>) -> Option<(Header, &'a [u8])> {
        let Some(bytes) = self.unseal(frame.bytes) else {
            self.on_refused(frame, "its code is not that of the frame");
            return None;
        };
        match frames::decode(bytes) {
            Ok(whole) => Some(whole),
            Err(error) => {
                self.on_refused(frame, &error);
                None
            }
        }
    }

    /// An aggregator or a member refused a frame: it closes the link, or drops the datagram.
    pub(crate) fn on_refused(&mut self, frame: Incoming<'_>, error: &str) {
        let Incoming { link, to: end, carrier, is_forged, .. } = frame;
        let key = self.edge_key(link);
        self.trace.note(self.now, key, || format!("link {link}: {end:?} refuses: {error}"));
        if carrier != Carrier::Link {
            return;
        }
        let is_tampered = is_forged || self.links[link as usize].is_tampered;
        let entry = key.and_then(|key| self.fault_record.find(key));
        let has_joined = self.links[link as usize].has_joined;
        let is_explained = entry.is_some_and(|entry| entry.explains_refusal(has_joined));
        if !is_tampered && !is_explained {
            let group = key.map_or_else(String::new, |key| key.to_string());
            self.report(key, Violation::HonestRefused { group, error: error.to_owned() });
        }
        self.refuse(link, end);
    }
}

/// A frame in a few words.
pub(crate) fn brief(header: &Header) -> String {
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
        Message::StreamRequest(request) => {
            format!(
                "stream request for operation {}, {} elements",
                request.operation,
                request.shape.elements()
            )
        }
        Message::Chunk(part) => format!("chunk {} of {}", part.sequence.0, part.operation),
        Message::ChunkResult(part) => format!("chunk result {}", part.sequence.0),
        Message::Ack { sequence, .. } => format!("ack {}", sequence.0),
        Message::Nack { sequence } => format!("nack {}", sequence.0),
        Message::Abort(abort) => format!("abort: {}", words(abort)),
        other => format!("{other:?}").to_lowercase(),
    }
}
