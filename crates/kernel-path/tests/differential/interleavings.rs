//! Goal: however runs of the program and the process meet at a slot, every contribution counts once, and nobody gets
//! a wrong result. Method: a few packets, and what the process does with the tables, take turns at every access to
//! what they share; all orders with few interruptions are played, and each time it is checked what became of every
//! contribution.
//!
//! `TRIBUTARY_INTERRUPTIONS` sets how often parts are interrupted at most.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::sync::Mutex;

use tributary_kernel_path::user_space::packets::{Checksum, HEAD_BYTES, packet};
use tributary_kernel_path::user_space::{UserSpace, Verdict};
use tributary_kernel_path::{Closed, Folded, Held, PlaceId, Tables, Taken};
use tributary_protocol::Time;
use tributary_protocol_testing::frames::{decode, encode, part, sequence};
use tributary_reduce::oracle;
use tributary_wire::frame::{Header, Message, Shape};
use tributary_wire::{Datatype, OperationNumber, Operator};

use crate::root::edge;
use crate::turns::{Part, all_orders};
use crate::{group, host, node};

const INTERRUPTIONS: usize = 2;
const CHILDREN: usize = 2;
/// The segment that the parts meet at, but for [`Does::MoveOn`]. Those before it are complete.
const MET: u32 = 2;

#[derive(Clone, Copy, Debug)]
enum Does {
    /// A member's packet meets the program.
    Packet { child: usize, number: u32, attempt: u8 },
    /// The process completes all segments before the one that is met, whose packets then meet the program.
    MoveOn,
    /// The process takes the segment.
    Take,
    /// The process ends the program's service to the group.
    Close,
}

/// What the program made of a member's packet, and the frames it sent.
struct Ran {
    child: usize,
    number: u32,
    verdict: Verdict,
    sent: Vec<Vec<u8>>,
}

enum Outcome {
    Ran(Vec<Ran>),
    Took(Taken),
    Closed(Closed),
}

/// The tables, and where the group is in them.
struct Process {
    tables: Tables,
    place: PlaceId,
}

impl Process {
    fn take(&self, number: u32) -> Taken {
        self.tables.take(self.place, sequence(number))
    }

    /// Folds what was gathered for it.
    fn complete(&self, number: u32) {
        assert!(matches!(self.take(number), Taken::Gathered(_)));
        self.tables.finish(self.place, sequence(number));
    }
}

struct Scenario {
    does: Vec<Does>,
    met: u32,
    window: u16,
    shape: Shape,
}

fn peers() -> Vec<SocketAddrV4> {
    (0..CHILDREN).map(|child| host(child, 4000 + child as u16)).collect()
}

fn payload(shape: Shape, number: u32, child: usize) -> Vec<u8> {
    vec![number as u8 * 16 + child as u8 + 1; shape.bytes()]
}

fn expected(shape: Shape, number: u32) -> Vec<u8> {
    let contributions: Vec<_> = (0..CHILDREN).map(|child| payload(shape, number, child)).collect();
    let contributions: Vec<_> = contributions.iter().map(Vec::as_slice).collect();
    oracle::accumulate(shape.operator(), shape.datatype(), &contributions)
}

impl Scenario {
    fn run_packet(&self, program: &UserSpace, child: usize, number: u32, attempt: u8) -> Ran {
        let mut part = part(OperationNumber(number), sequence(number), self.shape);
        part.has_data = true;
        part.retransmit.attempt = attempt;
        let header = Header { edge: edge(child), message: Message::Request(part) };
        let frame = encode(&header, &payload(self.shape, number, child));
        let bytes = packet(peers()[child], node(), [child as u8; 12], Checksum::None, &frame);
        let (verdict, sent) = program.run(1, &bytes, false);
        let sent = sent.into_iter().map(|sent| sent.bytes[HEAD_BYTES..].to_vec()).collect();
        Ran { child, number, verdict, sent }
    }

    /// Plays all orders. Returns how many there were, and how often the program made the result.
    #[allow(clippy::print_stdout, reason = "how many there were is worth knowing")]
    fn play(&self) -> (u64, u64) {
        let interruptions = std::env::var("TRIBUTARY_INTERRUPTIONS");
        let interruptions =
            interruptions.map_or(INTERRUPTIONS, |text| text.parse().expect("a number"));
        let completed = Mutex::new(0);
        let orders = all_orders(interruptions, |run| {
            let (program, mut tables) = UserSpace::new();
            let terms = group(self.window, &peers());
            let place = tables.admit(Time(0), &terms).expect("there is a place");
            let process = Process { tables, place };
            for number in 0..MET {
                for child in 0..CHILDREN {
                    if self.run_packet(&program, child, number, 0).verdict == Verdict::Pass {
                        process.complete(number);
                    }
                }
            }
            let process = Mutex::new(process);
            let parts = self.does.iter().map(|does| self.part(*does, &program, &process)).collect();
            let outcomes = run(parts);
            let process = process.into_inner().expect("no part panicked");
            *completed.lock().expect("no check panicked") +=
                u64::from(self.check(&process, outcomes));
        });
        let completed = completed.into_inner().expect("all are done");
        println!("{:?}: {orders} orders, {completed} completed by the program", self.does);
        (orders, completed)
    }

    fn part<'a>(
        &'a self,
        does: Does,
        program: &'a UserSpace,
        process: &'a Mutex<Process>,
    ) -> Part<'a, Outcome> {
        Box::new(move || match does {
            Does::Packet { child, number, attempt } => {
                Outcome::Ran(vec![self.run_packet(program, child, number, attempt)])
            }
            Does::MoveOn => {
                let process = process.lock().expect("no part panicked");
                (MET..self.met).for_each(|number| process.complete(number));
                let run = |child| self.run_packet(program, child, self.met, 0);
                Outcome::Ran((0..CHILDREN).map(run).collect())
            }
            Does::Take => Outcome::Took(process.lock().expect("no part panicked").take(self.met)),
            Does::Close => {
                let process = process.lock().expect("no part panicked");
                Outcome::Closed(process.tables.close(process.place))
            }
        })
    }

    /// Checks what became of every contribution. True if the program made the result.
    fn check(&self, process: &Process, outcomes: Vec<Outcome>) -> bool {
        let mut seen = Seen::default();
        for outcome in outcomes {
            match outcome {
                Outcome::Ran(packets) => {
                    packets.into_iter().for_each(|ran| self.note_ran(&mut seen, ran))
                }
                Outcome::Took(taken) => self.note_taken(&mut seen, taken),
                Outcome::Closed(Closed { results, forwarded, gathered }) => {
                    seen.is_closed = true;
                    results.iter().for_each(|answered| self.note_answered(&mut seen, answered));
                    assert!(forwarded.is_empty());
                    gathered.iter().for_each(|held| self.note_held(&mut seen, held));
                }
            }
        }
        if !seen.is_closed {
            self.note_taken(&mut seen, process.take(self.met));
        }
        seen.assert_each_counts_once();
        seen.is_answered
    }

    fn note_ran(&self, seen: &mut Seen, ran: Ran) {
        if ran.number == self.met {
            *seen.packets.entry(ran.child).or_default() += 1;
            if ran.verdict == Verdict::Pass {
                seen.passed.insert(ran.child);
            }
        }
        ran.sent.iter().for_each(|frame| self.note_sent(seen, frame));
    }

    fn note_sent(&self, seen: &mut Seen, frame: &[u8]) {
        let (header, bytes) = decode(frame).expect("the program sends frames");
        let Message::Result(part) = header.message else { return };
        let number = part.sequence.distance_from(sequence(0));
        assert_eq!(bytes, expected(self.shape, number), "result of segment {number}");
        let attempts = self.does.iter().filter_map(|does| match does {
            Does::Packet { child, number: sent, attempt }
                if *sent == number && *child == usize::from(header.edge.child.0) =>
            {
                Some(*attempt)
            }
            _ => None,
        });
        let attempt = part.retransmit.attempt;
        assert!(attempt == 0 || attempts.max() >= Some(attempt), "{attempt} was never sent");
        if number == self.met {
            *seen.results.entry(usize::from(header.edge.child.0)).or_default() += 1;
        }
    }

    fn note_taken(&self, seen: &mut Seen, taken: Taken) {
        match taken {
            Taken::Gathered(held) => held.iter().for_each(|held| self.note_held(seen, held)),
            Taken::Answered(answered) => self.note_answered(seen, &answered),
            Taken::Before => {}
            Taken::Busy | Taken::Past => panic!("the slot is nobody else's"),
            Taken::Forwarded(_) => panic!("this is the root"),
        }
    }

    fn note_answered(&self, seen: &mut Seen, answered: &Folded) {
        let number = answered.part.sequence.distance_from(sequence(0));
        assert_eq!(answered.payload, expected(self.shape, number));
        seen.is_answered |= number == self.met;
    }

    fn note_held(&self, seen: &mut Seen, held: &Held) {
        let child = usize::from(held.child.0);
        assert_eq!(held.part.sequence, sequence(self.met));
        assert_eq!(held.payload, payload(self.shape, self.met, child));
        assert!(seen.held.insert(child), "the process gets it once");
    }
}

/// What became of the contributions to the segment, by child.
#[derive(Debug, Default)]
struct Seen {
    packets: BTreeMap<usize, u32>,
    results: BTreeMap<usize, u32>,
    passed: BTreeSet<usize>,
    held: BTreeSet<usize>,
    is_answered: bool,
    is_closed: bool,
}

impl Seen {
    fn assert_each_counts_once(&self) {
        for (child, packets) in &self.packets {
            let results = self.results.get(child).copied().unwrap_or_default();
            if self.is_answered {
                assert!((1..=*packets).contains(&results), "child {child}: {self:?}");
                let is_repeat = *packets > 1;
                assert!(is_repeat || !self.passed.contains(child), "child {child}: {self:?}");
            } else {
                assert_eq!(results, 0, "child {child}: {self:?}");
                let comes = self.passed.contains(child) || self.held.contains(child);
                assert!(comes, "child {child} is lost: {self:?}");
            }
        }
        assert!(!self.is_answered || self.held.is_empty(), "{self:?}");
    }
}

fn shape(datatype: Datatype) -> Shape {
    Shape::new(Operator::Sum, datatype, 3).expect("it is defined")
}

fn met(child: usize, attempt: u8) -> Does {
    Does::Packet { child, number: MET, attempt }
}

/// Plays a scenario of segments that the program folds.
fn play(does: &[Does], window: u16) -> (u64, u64) {
    Scenario { does: does.to_vec(), met: MET, window, shape: shape(Datatype::I32) }.play()
}

#[test]
fn two_members_meet() {
    let (orders, completed) = play(&[met(0, 0), met(1, 0)], 4);
    assert!(0 < completed && completed < orders, "a thread that loses the race to open goes up");
}

#[test]
fn a_repeat_meets_what_it_repeats() {
    let (_, completed) = play(&[met(0, 0), met(0, 1), met(1, 0)], 4);
    assert!(completed > 0);
}

#[test]
fn the_process_takes_what_is_gathered() {
    let (orders, completed) = play(&[met(0, 0), met(1, 0), Does::Take], 4);
    assert!(0 < completed && completed < orders);
}

#[test]
fn the_process_ends_the_service() {
    let (orders, completed) = play(&[met(0, 0), met(1, 0), Does::Close], 4);
    assert!(0 < completed && completed < orders);
}

#[test]
fn a_late_repeat_meets_the_next_use_of_its_slot() {
    // A window of one has two slots: the segment met has the slot of number 0.
    let late = Does::Packet { child: 0, number: 0, attempt: 1 };
    let (_, completed) = play(&[late, met(0, 0), met(1, 0)], 1);
    assert!(completed > 0);
}

#[test]
fn a_core_that_halts_meets_the_next_use_of_its_lane() {
    // A window of one has two slots: number 4 has the slot that number 2 had.
    let scenario = Scenario {
        does: vec![met(0, 0), Does::MoveOn],
        met: MET + 2,
        window: 1,
        shape: shape(Datatype::I32),
    };
    let (orders, completed) = scenario.play();
    assert_eq!(completed, orders, "nothing of the segment before is left in the slot");
}

#[test]
fn what_the_process_folds_is_gathered_once() {
    let play = |does: &[Does]| {
        Scenario { does: does.to_vec(), met: MET, window: 4, shape: shape(Datatype::F16) }.play().1
    };
    assert_eq!(play(&[met(0, 0), met(1, 0), met(1, 1)]), 0);
    assert_eq!(play(&[met(0, 0), met(1, 0), Does::Take]), 0);
}
