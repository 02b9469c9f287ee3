//! Goal: below another aggregator, every member gets the parent's result and the parent the sum, however the parent's
//! packets, members' repeats, members that go on, and the process meet at a slot. Method: as in `interleavings.rs`, all
//! orders with few interruptions, of what may come once the program has sent the sum upward.

use std::net::SocketAddrV4;
use std::sync::Mutex;

use tributary_kernel_path::user_space::packets::{Checksum, HEAD_BYTES, packet, parse};
use tributary_kernel_path::user_space::{UserSpace, Verdict};
use tributary_kernel_path::{Closed, Folded, GroupTerms, PlaceId, Tables};
use tributary_protocol::Time;
use tributary_protocol_testing::frames::{decode, encode, part, sequence};
use tributary_reduce::oracle;
use tributary_wire::frame::{Header, Message, Part, Shape};
use tributary_wire::{Datatype, OperationNumber, Operator};

use crate::parent::{PARENT, Parent, parent_address, parent_edge, parent_terms};
use crate::root::edge;
use crate::turns::{self, all_orders};
use crate::{bytes_of, group, host, node};

const INTERRUPTIONS: usize = 2;
const CHILDREN: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Does {
    /// The parent sends a segment's result.
    Result { number: u32 },
    /// The parent acks.
    Ack { number: u32 },
    /// A member's packet: a repeat, or what it sends next.
    Packet { child: usize, number: u32, attempt: u8 },
    /// The process takes over what was sent upward of a segment.
    Take { number: u32 },
    /// The process ends the program's service to the group.
    Close,
}

/// What came of one of them.
struct Outcome {
    does: Does,
    verdict: Option<Verdict>,
    sent: Vec<(SocketAddrV4, Vec<u8>)>,
    taken: Option<Folded>,
    closed: Option<Closed>,
}

struct Scenario {
    does: Vec<Does>,
    window: u16,
    /// So many segments were sent upward before.
    forwarded: u32,
}

fn shape() -> Shape {
    Shape::new(Operator::Sum, Datatype::I32, 3).expect("it is defined")
}

fn contribution(number: u32, child: usize) -> Vec<u8> {
    vec![number as u8 * 16 + child as u8 + 1; shape().bytes()]
}

fn sum(number: u32) -> Vec<u8> {
    let contributions: Vec<_> = (0..CHILDREN).map(|child| contribution(number, child)).collect();
    let contributions: Vec<_> = contributions.iter().map(Vec::as_slice).collect();
    oracle::accumulate(shape().operator(), shape().datatype(), &contributions)
}

fn result(number: u32) -> Vec<u8> {
    vec![200 + number as u8; shape().bytes()]
}

fn part_of(number: u32) -> Part {
    Part { has_data: true, ..part(OperationNumber(number), sequence(number), shape()) }
}

fn peer(child: usize) -> SocketAddrV4 {
    host(child, 4000 + child as u16)
}

impl Scenario {
    fn send_packet(&self, program: &UserSpace, child: usize, number: u32, attempt: u8) -> Outcome {
        let mut part = part_of(number);
        part.retransmit.attempt = attempt;
        let header = Header { edge: edge(child), message: Message::Request(part) };
        let does = Does::Packet { child, number, attempt };
        run_program(program, does, peer(child), &header, &contribution(number, child))
    }

    fn act(
        &self,
        does: Does,
        program: &UserSpace,
        tables: &Mutex<Tables>,
        place: PlaceId,
    ) -> Outcome {
        let quiet = Outcome { does, verdict: None, sent: Vec::new(), taken: None, closed: None };
        match does {
            Does::Packet { child, number, attempt } => {
                self.send_packet(program, child, number, attempt)
            }
            Does::Result { number } => {
                let message = Message::Result(part_of(number));
                let header = Header { edge: parent_edge(), message };
                run_program(program, does, parent_address(), &header, &result(number))
            }
            Does::Ack { number } => {
                let message = Message::Ack { sequence: sequence(number), attempt: 0 };
                let header = Header { edge: parent_edge(), message };
                run_program(program, does, parent_address(), &header, &[])
            }
            Does::Take { number } => {
                let tables = tables.lock().expect("no part panicked");
                let taken = tables.take_forwarded(place, sequence(number));
                Outcome { taken, ..quiet }
            }
            Does::Close => {
                let closed = tables.lock().expect("no part panicked").close(place);
                Outcome { closed: Some(closed), ..quiet }
            }
        }
    }

    /// Plays all orders. Returns how many there were, and in how many the program got the result of segment 0.
    fn play(&self) -> (u64, u64) {
        let answered = Mutex::new(0);
        let orders = all_orders(INTERRUPTIONS, |run| {
            let (program, mut tables) = UserSpace::new();
            let peers: Vec<_> = (0..CHILDREN).map(peer).collect();
            let terms =
                GroupTerms { parent: Some(parent_terms(true)), ..group(self.window, &peers) };
            let place = tables.admit(Time(0), &terms).expect("there is a place");
            program.run(1, &bytes_of(&Parent::greeting()), false);
            for number in 0..self.forwarded {
                for child in 0..CHILDREN {
                    let outcome = self.send_packet(&program, child, number, 0);
                    assert_ne!(outcome.verdict, Some(Verdict::Pass));
                    check_frames(&outcome);
                }
            }
            let tables = Mutex::new(tables);
            let parts = self.does.iter().map(|does| {
                let act: turns::Part<'_, Outcome> =
                    Box::new(|| self.act(*does, &program, &tables, place));
                act
            });
            let outcomes = run(parts.collect());
            *answered.lock().expect("no check panicked") += u64::from(self.check(&outcomes));
        });
        (orders, answered.into_inner().expect("all are done"))
    }

    /// Checks what became of segment 0. True if the program got its result.
    fn check(&self, outcomes: &[Outcome]) -> bool {
        outcomes.iter().for_each(check_frames);
        let mut takers = 0;
        for folded in outcomes.iter().filter_map(|outcome| outcome.taken.as_ref()) {
            assert_eq!(folded.payload, sum(folded.part.sequence.distance_from(sequence(0))));
            takers += u32::from(folded.part.sequence == sequence(0));
        }
        for closed in outcomes.iter().filter_map(|outcome| outcome.closed.as_ref()) {
            for folded in &closed.forwarded {
                assert_eq!(folded.payload, sum(folded.part.sequence.distance_from(sequence(0))));
                takers += u32::from(folded.part.sequence == sequence(0));
            }
            for folded in &closed.results {
                assert_eq!(folded.payload, result(folded.part.sequence.distance_from(sequence(0))));
            }
        }
        // A child that goes on has the result by multicast, and needs no copy.
        let goes_on = |does: &Does| matches!(does, Does::Packet { number: 1.., .. });
        let is_overtaken = self.does.iter().any(goes_on);
        let mut is_answered = false;
        for outcome in outcomes {
            if !matches!(outcome.does, Does::Result { number: 0 }) {
                continue;
            }
            // The program drops what it had before, or what its members have gone on from.
            let receivers: Vec<_> = outcome.sent.iter().map(|(to, _)| *to).collect();
            if receivers.is_empty() {
                continue;
            }
            assert!(receivers == [peer(0), peer(1)] || is_overtaken, "{receivers:?}");
            assert!(!is_answered, "a result goes down once");
            is_answered = true;
        }
        // The side that has the segment gets its result: the program or the process, or nobody needs it any more.
        let has_somebody = takers + u32::from(is_answered);
        assert!(has_somebody == 1 || is_overtaken && has_somebody == 0, "{takers} takers");
        is_answered
    }
}

fn run_program(
    program: &UserSpace,
    does: Does,
    from: SocketAddrV4,
    header: &Header,
    payload: &[u8],
) -> Outcome {
    let number = if from == parent_address() { PARENT } else { usize::from(header.edge.child.0) };
    let bytes = packet(from, node(), [number as u8; 12], Checksum::None, &encode(header, payload));
    let (verdict, sent) = program.run(1, &bytes, false);
    let sent =
        sent.into_iter().map(|sent| (parse(&sent.bytes).to, sent.bytes[HEAD_BYTES..].to_vec()));
    Outcome { does, verdict: Some(verdict), sent: sent.collect(), taken: None, closed: None }
}

/// Members get results, and the parent sums.
fn check_frames(outcome: &Outcome) {
    for (to, frame) in &outcome.sent {
        let (header, payload) = decode(frame).expect("the program sends frames");
        match header.message {
            Message::Result(part) => {
                assert_ne!(*to, parent_address());
                assert_eq!(payload, result(part.sequence.distance_from(sequence(0))));
            }
            Message::Request(part) => {
                assert_eq!(*to, parent_address());
                assert_eq!(payload, sum(part.sequence.distance_from(sequence(0))));
            }
            Message::Ack { .. } | Message::Nack { .. } => assert_ne!(*to, parent_address()),
            other => panic!("{other:?}"),
        }
    }
}

fn repeat(child: usize, attempt: u8) -> Does {
    Does::Packet { child, number: 0, attempt }
}

fn play(does: &[Does], window: u16, forwarded: u32) -> (u64, u64) {
    Scenario { does: does.to_vec(), window, forwarded }.play()
}

#[test]
fn a_result_comes_twice() {
    let (orders, answered) = play(&[Does::Result { number: 0 }, Does::Result { number: 0 }], 4, 1);
    assert_eq!(answered, orders);
}

#[test]
fn repeats_meet_the_result() {
    let does = [repeat(0, 1), repeat(1, 1), Does::Result { number: 0 }];
    let (orders, answered) = play(&does, 4, 1);
    assert_eq!(answered, orders);
    let (orders, answered) = play(&[Does::Ack { number: 0 }, repeat(0, 3), does[2]], 4, 1);
    assert_eq!(answered, orders);
}

#[test]
fn the_process_takes_over_what_was_sent_upward() {
    let result = Does::Result { number: 0 };
    let (orders, answered) = play(&[result, Does::Take { number: 0 }], 4, 1);
    assert!(0 < answered && answered < orders);
    let (orders, answered) = play(&[result, repeat(0, 1), Does::Take { number: 0 }], 4, 1);
    assert!(0 < answered && answered < orders);
    let (orders, answered) = play(&[result, repeat(0, 1), Does::Close], 4, 1);
    assert!(0 < answered && answered < orders);
}

#[test]
fn members_go_on_before_the_result_comes() {
    // A window of one has two slots: number 2 has the slot that number 0 had.
    let next = |child| Does::Packet { child, number: 2, attempt: 0 };
    let result = Does::Result { number: 0 };
    let (orders, answered) = play(&[result, next(0)], 1, 2);
    assert!(0 < answered && answered < orders);
    let (orders, answered) = play(&[result, next(0), next(1)], 1, 2);
    assert!(0 < answered && answered < orders);
    let (orders, answered) = play(&[result, repeat(0, 1), next(1)], 1, 2);
    assert!(0 < answered && answered < orders);
}
