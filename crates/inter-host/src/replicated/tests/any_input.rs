//! Whatever a member says, this host survives: it has the secret, and may be broken.

use tributary_algorithms::plan::Plan;
use tributary_replicated::{Levels, Message as Said, Step};
use tributary_wire::frame::{
    self, Called, Contribution, Header, Part, Question, RepeatedHead, RetransmitState, Shape,
    Target,
};
use tributary_wire::{EndpointId, OperationNumber, SegmentIndex, Sequence};

use super::super::datagrams::Datagrams;
use super::super::group::Traffic;
use super::super::wire_messages;
use super::*;
use crate::direct::Peers;

const MEMBERS: u32 = 3;

/// One host's group, and one that says anything.
struct Scene {
    random: Pcg64Mcg,
    levels: Levels,
    traffic: Traffic,
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
        let plan = Plan::new(MEMBERS, &[vec![MEMBERS]]).unwrap();
        let levels = Levels::new(&plan, 0, 100).unwrap();
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            traffic: Traffic::new(&levels.groups()[0]),
            levels,
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

    fn end(&mut self, member: u8) {
        self.traffic.drop_unsaid(member);
        self.levels.handle_link_closed(member.into());
    }

    fn act(&mut self, step: Step) {
        let group = &self.levels.groups()[0];
        match step {
            Step::Send { datagram, payload, previous, .. } => {
                self.traffic.send(group, datagram, (payload, previous), &mut self.datagrams);
            }
            Step::Tell { to, message, payload, .. } => {
                self.traffic.tell(group, to, message, payload);
            }
            Step::Fold { place, .. } => {
                self.traffic.fold(place, kernel(Operator::Sum, Datatype::F64));
            }
            Step::Raise { .. } => unreachable!("there is one level"),
            Step::Completed { .. } => self.is_free = true,
            Step::Failed { .. } => self.has_failed = true,
        }
    }

    fn step(&mut self) {
        let member = self.random.random_range(1..MEMBERS) as u8;
        match self.random.random_range(0..10) {
            0 => {
                let mut vector = [0; 8];
                let operation = allreduce_of(&mut vector, Operator::Sum, Datatype::F64, &[3]);
                let call = wire_messages::call_of(&operation, self.random.random_range(0..2));
                if self.is_free {
                    self.traffic.begin(&self.levels.groups()[0], &vector);
                    self.is_free = self.levels.begin(call, self.now_ns).is_err();
                }
            }
            1 if self.random.random_ratio(1, 20) => self.end(member),
            1 | 2 => {
                self.now_ns += 70;
                self.levels.handle_timer(self.now_ns);
            }
            3..6 => {
                let (part, repeated) = (self.part(), self.repeated());
                let contribution = Contribution { part, repeated_bytes: repeated.len() as u16 };
                let payload = [vec![5; part.payload_bytes()], repeated].concat();
                self.traffic.take_datagram(&mut self.levels, (0, member), &contribution, &payload);
            }
            _ => {
                let (message, payload) = self.message();
                let whole = |_, OperationNumber(number)| self.levels.groups()[0].whole(number);
                let said: Option<(u32, Said)> = wire_messages::from_wire(&message, whole);
                if let Some((_, said)) = said {
                    let _ =
                        self.traffic.take_message(&mut self.levels, (0, member), said, &payload);
                }
            }
        }
        while let Some(step) = self.levels.poll(self.now_ns) {
            self.act(step);
        }
        // What is said goes through the encoder, as on its way to a link.
        for unsaid in self.traffic.unsaid.drain(..) {
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
