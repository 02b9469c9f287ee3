//! Frames to and from nodes.

use tributary_protocol::Carrier;
use tributary_protocol::node::PortId;
use tributary_wire::frame::{HEADER_BYTES, Header, Message};

use super::OUTBOX_SPARE;
use crate::swarm::agenda::End;
use crate::swarm::verdict::{Violation, words};
use crate::swarm::world::{Incoming, World};

impl World<'_> {
    /// Sends what the machine has for a port, as far as the link takes it.
    pub(in crate::swarm) fn flush(&mut self, node: u32, port: PortId) {
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
    pub(in crate::swarm) fn check_window(&mut self, link: u32, sequence: u32) {
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
    pub(in crate::swarm) fn node_takes(&mut self, node: u32, port: PortId, frame: Incoming<'_>) {
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
    pub(in crate::swarm) fn decode(&mut self, frame: Incoming<'_>) -> Option<Header> {
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
    pub(in crate::swarm) fn on_refused(&mut self, frame: Incoming<'_>, error: &str) {
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
}

/// A frame in a few words.
pub(in crate::swarm) fn brief(header: &Header) -> String {
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
        Message::Abort(abort) => format!("abort: {}", words(abort)),
        other => format!("{other:?}").to_lowercase(),
    }
}
