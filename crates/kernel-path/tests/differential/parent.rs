//! The aggregator above the one under test: an honest one over a bad network, and what others may send in its name.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, RngExt};
use tributary_kernel_path::ParentTerms;
use tributary_kernel_path::user_space::packets::Checksum;
use tributary_protocol::node::{ParentConfig, PortId};
use tributary_protocol_testing::frames::{encode, sequence};
use tributary_wire::frame::{Edge, Header, Message, Part, RetransmitState};
use tributary_wire::{Capability, ChildIndex};

use crate::members::{Kind, Shot, payload, spoil};
use crate::process::Sent;
use crate::root::edge_of;
use crate::{host, node};

/// The link to it, and its number where children are numbered.
pub(crate) const PARENT: usize = 16;

/// What frames to it are marked with where frames to children are marked with the child.
pub(crate) const UPWARD: ChildIndex = ChildIndex(PARENT as u16);

/// Which of its children the aggregator is.
const CHILD: ChildIndex = ChildIndex(5);

fn capability() -> Capability {
    Capability::from_bytes([100; 16])
}

pub(crate) fn parent_edge() -> Edge {
    edge_of(CHILD, capability())
}

pub(crate) fn parent_address() -> SocketAddrV4 {
    host(PARENT, 7471)
}

pub(crate) fn parent_config() -> ParentConfig {
    ParentConfig {
        name: "above".into(),
        port: PortId(PARENT as u32),
        child: CHILD,
        capability: capability(),
    }
}

pub(crate) fn parent_terms(may_be_overtaken: bool) -> ParentTerms {
    ParentTerms {
        child: CHILD,
        capability: capability(),
        peer: parent_address(),
        own: node(),
        may_be_overtaken,
    }
}

/// What a parent has got, and what it has made of it.
#[derive(Default)]
pub(crate) struct Parent {
    /// The contributions that have come, by segment.
    requests: BTreeMap<u32, Part>,
    results: BTreeMap<u32, Vec<u8>>,
}

impl Parent {
    /// An ack of nothing that was sent: of its packet the program learns the route.
    pub(crate) fn greeting() -> Shot {
        let message = Message::Ack { sequence: sequence(0), attempt: 0 };
        shot(Kind::Honest, message, &[])
    }

    /// Takes what was sent upward. Returns the segments that are new.
    pub(crate) fn note(&mut self, sent: &[Sent]) -> Vec<u32> {
        let mut new = Vec::new();
        for (_, frame) in sent.iter().filter(|(to, _)| *to == UPWARD) {
            let Ok(Header { message: Message::Request(part), .. }) = Header::decode(frame) else {
                continue;
            };
            let number = part.sequence.distance_from(sequence(0));
            if self.requests.insert(number, part).is_none() {
                new.push(number);
            }
        }
        // What is older than any window is never repeated.
        while self.requests.len() > 48 {
            let Some((number, _)) = self.requests.pop_first() else { break };
            self.results.remove(&number);
        }
        new
    }

    /// Draws the next packet from it; none if nothing has come.
    pub(crate) fn next(&mut self, random: &mut impl Rng) -> Option<Shot> {
        let is_answered = |number: &u32| self.results.contains_key(number);
        let unanswered = self.requests.keys().find(|number| !is_answered(number)).copied();
        let any = *self.requests.keys().choose(random)?;
        let number = unanswered.filter(|_| random.random_bool(0.7)).unwrap_or(any);
        let mut part = self.requests[&number];
        let sequence = part.sequence;
        if random.random_bool(0.1) {
            let attempt = random.random_range(0..3);
            return Some(shot(Kind::Honest, Message::Ack { sequence, attempt }, &[]));
        }
        let kind = match random.random_range(0..20) {
            0 => Kind::WrongCapability,
            1 => Kind::WrongSource,
            2 => Kind::WrongEdge,
            3 => Kind::Damaged,
            4 => Kind::WrongWindow,
            5 => Kind::Disagreement,
            _ => Kind::Honest,
        };
        let result = match kind {
            // What it says once it says always.
            Kind::Honest => {
                let result = self.results.entry(number);
                result.or_insert_with(|| payload(random, &part.shape)).clone()
            }
            _ => payload(random, &part.shape),
        };
        if kind == Kind::WrongWindow {
            part.sequence.0 = part.sequence.0.wrapping_add(random.random_range(1..80));
        }
        part.retransmit = RetransmitState { attempt: random.random(), behind: random.random() };
        let mut shot = shot(kind, Message::Result(part), &result);
        shot.checksum = *[Checksum::None, Checksum::Full, Checksum::Partial]
            .choose(random)
            .expect("there are three");
        let header = Header { edge: parent_edge(), message: Message::Result(part) };
        spoil(random, &mut shot, header, &result);
        Some(shot)
    }
}

/// The segment that a result answers, if the shot is an honest one.
pub(crate) fn result_of(shot: &Shot) -> Option<u32> {
    match Header::decode(&shot.frame).ok()?.message {
        Message::Result(part) if shot.child == PARENT && shot.kind == Kind::Honest => {
            Some(part.sequence.distance_from(sequence(0)))
        }
        _ => None,
    }
}

fn shot(kind: Kind, message: Message, payload: &[u8]) -> Shot {
    let header = Header { edge: parent_edge(), message };
    Shot {
        kind,
        child: PARENT,
        from: parent_address(),
        frame: encode(&header, payload),
        checksum: Checksum::Full,
    }
}
