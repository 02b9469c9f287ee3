//! Frames to and from members.

use tributary_protocol::Carrier;
use tributary_protocol::endpoint::{Body, Transmit};
use tributary_protocol_testing::values::Contribution;
use tributary_wire::frame::Message;

use crate::agenda::End;
use crate::job::Expected;
use crate::nodes::brief;
use crate::verdict::Violation;
use crate::world::{Incoming, World};

impl World<'_> {
    pub(super) fn transmit(&mut self, member: u32) {
        let entry = &self.members[member as usize];
        let Some(link) = entry.link else { return };
        if entry.is_dead {
            return;
        }
        let frames_max = self.scenario.network.link_frames;
        let time = self.time_at(self.members[member as usize].host);
        while self.links[link as usize].is_open(End::Lower) {
            let Some(transmit) = self.members[member as usize].endpoint.peek_transmit() else {
                return;
            };
            let is_by_link = transmit.carrier == Carrier::Link;
            if is_by_link && !self.links[link as usize].has_room(End::Upper, frames_max) {
                self.link(link).is_blocked[End::Lower as usize] = true;
                return;
            }
            let bytes = self.frame(member, &transmit);
            self.member(member).endpoint.pop_transmit(time);
            let key = self.edge_key(link);
            self.trace.note(self.now, key, || {
                let number = self.members[member as usize].number;
                format!("link {link}: member {number} sends {}", brief(&transmit.header))
            });
            self.count_sent(link, &transmit.header.message);
            if matches!(transmit.header.message, Message::Request(_)) && self.scenario.replays() {
                self.link(link).last_request.clone_from(&bytes);
            }
            self.send_by(transmit.carrier, link, End::Upper, bytes);
        }
    }

    fn frame(&mut self, member: u32, transmit: &Transmit) -> Vec<u8> {
        let mut bytes = self.buffer();
        bytes.extend_from_slice(&transmit.header.encode());
        self.members[member as usize].running.append_payload(transmit, &mut bytes);
        bytes
    }

    /// A frame arrives at a member.
    pub(crate) fn member_takes(&mut self, member: u32, frame: Incoming<'_>) {
        self.restless_members.push(member);
        if self.members[member as usize].is_dead {
            return;
        }
        let Incoming { link, carrier, is_forged, .. } = frame;
        let Some((header, payload)) = self.decode(frame) else { return };
        let time = self.time_at(self.members[member as usize].host);
        match self.member(member).endpoint.handle_frame(time, carrier, &header) {
            Err(error) => self.on_refused(frame, &error.to_string()),
            Ok(body) => {
                if is_forged {
                    let what = brief(&header);
                    self.report(self.edge_key(link), Violation::ForgeryAccepted { what });
                }
                self.link(link).windows.on_taken(&header.message);
                if let Some(body) = body {
                    self.take_result(member, &body, payload);
                }
            }
        }
    }

    fn take_result(&mut self, member: u32, body: &Body, payload: &[u8]) {
        let entry = self.member(member);
        let (index, run) = (entry.number, entry.run);
        let operation = entry.running.on_result(body);
        if self.member(member).mistake.is_some_and(|(mistaken, _)| mistaken <= operation) {
            return;
        }
        let key = self.runs[run as usize].key;
        let expected = self.expected_result(run, operation);
        let is_right = expected.is_sound && expected.bytes.get(body.bytes.clone()) == Some(payload);
        if let Some(leader) = self.members[member as usize].leader() {
            self.leader_takes(leader, body.bytes.start, payload);
        }
        if !is_right {
            let group = key.to_string();
            self.report(Some(key), Violation::WrongResult { group, member: index, operation });
        }
    }

    /// The expected result of an operation.
    pub(crate) fn expected_result(&mut self, run: u32, operation: usize) -> &Expected {
        let entry = &self.runs[run as usize];
        let plan = self.operation_plan(entry.job, entry.group, operation);
        let entry = &mut self.runs[run as usize];
        entry.expected.resize(entry.expected.len().max(operation + 1), None);
        let (shape, tag, members) = (&entry.shape, entry.tag, entry.members.len() as u32);
        entry.expected[operation].get_or_insert_with(|| {
            let bytes = shape.expected_result(&plan, tag, operation);
            let is_sound = plan.is_sound(&bytes, Contribution::of_all(tag, operation, members));
            Expected { bytes, is_sound }
        })
    }
}
