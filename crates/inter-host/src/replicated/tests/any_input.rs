//! Whatever a member says, this host survives: it has the secret, and may be broken.

use tributary_algorithms::plan::HostGroup;
use tributary_replicated::Message as Said;
use tributary_wire::frame::{
    self, Called, Contribution, Header, Part, Question, RepeatedHead, RetransmitState, Shape,
    Target,
};
use tributary_wire::{EndpointId, OperationNumber, SegmentIndex, Sequence};

use super::super::datagrams::Datagrams;
use super::super::group::{Event, Group};
use super::super::wire_messages;
use super::*;
use crate::direct::Peers;

const MEMBERS: u32 = 3;

/// One host's group, and one that says anything.
struct Scene {
    random: Pcg64Mcg,
    group: Group,
    datagrams: Datagrams,
    now_ns: u64,
    /// No operation is under way.
    is_free: bool,
    has_failed: bool,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let local = Ipv4Addr::LOCALHOST.into();
        let identity = identity(false);
        let (listener, listens_at) = Listener::bind(local, None).unwrap();
        let (endpoint, takes_at) = Endpoint::bind(local, None).unwrap();
        let all = |address| vec![address; MEMBERS as usize];
        let peers = Peers::new(0, identity, listener, all(listens_at));
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            group: Group::new(0, HostGroup { round: 0, hosts: (0..MEMBERS).collect() }, 0, 100),
            datagrams: Datagrams::new(endpoint, identity, peers.edge(), all(takes_at)),
            now_ns: 0,
            is_free: true,
            has_failed: false,
        }
    }

    fn number(&mut self) -> OperationNumber {
        let near = self.random.random_range(0..6);
        OperationNumber(if self.random.random_ratio(1, 10) { self.random.random() } else { near })
    }

    /// A header of a part as it is decoded: any that the decoder lets pass.
    fn part(&mut self) -> Part {
        let operators = [Operator::Sum, Operator::Barrier, Operator::Broadcast, Operator::MinLoc];
        loop {
            let operator = operators[self.random.random_range(0..operators.len())];
            let datatype = Datatype::ALL[self.random.random_range(0..Datatype::ALL.len())];
            let Ok(shape) = Shape::new(operator, datatype, self.random.random_range(0..4)) else {
                continue;
            };
            return Part {
                operation: self.number(),
                segment: SegmentIndex(self.random.random()),
                sequence: Sequence(0),
                shape,
                target: Target::Member(EndpointId(self.random.random_range(0..2))),
                has_data: operator.is_reduction()
                    || operator == Operator::Broadcast && self.random.random(),
                retransmit: RetransmitState { attempt: self.random.random_range(0..2), behind: 0 },
            };
        }
    }

    fn repeated(&mut self) -> Vec<u8> {
        let called = Called {
            collective: self.random.random_range(0..2),
            operator: Operator::ALL[self.random.random_range(0..Operator::ALL.len())],
            datatype: Datatype::ALL[self.random.random_range(0..Datatype::ALL.len())],
        };
        let head = RepeatedHead { called, digest: self.random.random_range(0..2) };
        let length = self.random.random_range(0..=64);
        let mut bytes = head.encode().to_vec();
        bytes.extend((0..length).map(|_| self.random.random::<u8>()));
        bytes
    }

    fn message(&mut self) -> (frame::Message, Vec<u8>) {
        let question = Question {
            operation: self.number(),
            level: 0,
            of: self.random.random::<bool>().then(|| self.random.random_range(0..70)),
        };
        let part = self.part();
        let of = self.random.random_range(0..70);
        let message = match self.random.random_range(0..6) {
            0 => frame::Message::Ask(question),
            1 => frame::Message::NotYet(question),
            2 => frame::Message::AskForSum { operation: question.operation, level: 0 },
            3 => frame::Message::LevelSum(part),
            4 => frame::Message::Passed { part, of },
            _ => frame::Message::Contribution(Contribution { part, repeated_bytes: 0 }),
        };
        let edge = self.datagrams.edge();
        let header = Header { edge, message };
        assert_eq!(Header::decode(&header.encode()), Ok(header), "such a frame may come");
        (message, vec![7; header.payload_bytes()])
    }

    fn step(&mut self) {
        let member = self.random.random_range(1..MEMBERS) as u8;
        match self.random.random_range(0..10) {
            0 => {
                let mut vector = [0; 8];
                let operation = allreduce_of(&mut vector, Operator::Sum, Datatype::F64, &[3]);
                let call = wire_messages::call_of(&operation, self.random.random_range(0..2));
                if self.is_free {
                    self.is_free = !self.group.begin(call, &vector, self.now_ns);
                }
            }
            1 if self.random.random_ratio(1, 20) => self.group.handle_link_closed(member),
            1 | 2 => {
                self.now_ns += 70;
                self.group.handle_timer(self.now_ns);
            }
            3..6 => {
                let (part, repeated) = (self.part(), self.repeated());
                let contribution = Contribution { part, repeated_bytes: repeated.len() as u16 };
                let payload = [vec![5; part.payload_bytes()], repeated].concat();
                self.group.take_datagram(member, &contribution, &payload);
            }
            _ => {
                let (message, payload) = self.message();
                let whole = |_, number| self.group.whole(number);
                let said: Option<(u32, Said)> = wire_messages::from_wire(&message, whole);
                if let Some((_, said)) = said {
                    let _ = self.group.take_message(member, said, &payload);
                }
            }
        }
        let sum = kernel(Operator::Sum, Datatype::F64);
        while let Some(event) = self.group.act(sum, &mut self.datagrams) {
            self.has_failed |= matches!(event, Event::Failed { .. });
            self.is_free |= matches!(event, Event::Completed { .. });
        }
        // What is said goes through the encoder, as on its way to a link.
        for unsaid in self.group.unsaid.drain(..) {
            let header = Header { edge: self.datagrams.edge(), message: unsaid.message };
            assert_eq!(header.payload_bytes(), unsaid.payload.len(), "{header:?}");
        }
    }
}

#[test]
fn nothing_that_a_member_says_stops_a_host() {
    let mut failed = 0;
    for seed in 0..300 {
        let run = std::panic::catch_unwind(|| {
            let mut scene = Scene::new(seed);
            (0..200).for_each(|_| scene.step());
            scene.has_failed
        });
        failed += u32::from(run.unwrap_or_else(|_| panic!("seed {seed}")));
    }
    // Not all, or nothing behind a failure is tested; and some, or nothing that differs is.
    assert!((1..300).contains(&failed), "{failed}");
}
