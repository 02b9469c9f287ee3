//! An executor over in-memory channels, whose order of delivery depends on a seed, and operands that
//! record how they were combined.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_algorithms::{Action, Algorithm, Buffer, Collective, Landing, Schedule, Shape, Span};

/// An operand of the free magma: it records association and order, so equal values mean equal bits under
/// any operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term(pub(crate) String);

impl Term {
    pub(crate) fn leaf(rank: u32, element: u64) -> Self {
        Self(format!("{rank}.{element}"))
    }

    pub(crate) fn with(&self, right: &Self) -> Self {
        Self(format!("({} {})", self.0, right.0))
    }

    /// The operands, from left to right.
    pub(crate) fn leaves(&self) -> Vec<String> {
        let plain = self.0.replace(['(', ')'], "");
        plain.split(' ').map(str::to_owned).collect()
    }
}

struct Rank {
    schedule: std::iter::Peekable<Schedule>,
    vector: Vec<Term>,
    aside: Vec<Term>,
    /// Unfinished sends: the executor delays them as long as the rules allow.
    unsent: VecDeque<(u32, Span)>,
    messages: usize,
}

/// All ranks of one operation.
pub(crate) struct Team {
    ranks: Vec<Rank>,
    /// `wires[from][to]`.
    wires: Vec<Vec<VecDeque<Vec<Term>>>>,
    random: Pcg64Mcg,
}

impl Team {
    pub(crate) fn new(
        algorithm: Algorithm,
        collective: Collective,
        shape: Shape,
        seed: u64,
    ) -> Self {
        let schedule =
            |rank| Schedule::new(algorithm, collective, shape, rank).expect("a schedule");
        Self::of((0..shape.ranks).map(schedule).collect(), shape.elements, seed)
    }

    /// Ranks that walk these schedules.
    pub(crate) fn of(schedules: Vec<Schedule>, elements: u64, seed: u64) -> Self {
        let ranks = schedules.len();
        let rank = |(rank, schedule): (usize, Schedule)| {
            let aside = if schedule.needs_aside() { elements } else { 0 };
            Rank {
                schedule: schedule.peekable(),
                vector: (0..elements).map(|element| Term::leaf(rank as u32, element)).collect(),
                aside: vec![Term("nothing".to_owned()); aside as usize],
                unsent: VecDeque::new(),
                messages: 0,
            }
        };
        Self {
            ranks: schedules.into_iter().enumerate().map(rank).collect(),
            wires: vec![vec![VecDeque::new(); ranks]; ranks],
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// Runs the operation. Returns each rank's final vector and how many messages it sent.
    pub(crate) fn run(mut self) -> Vec<(Vec<Term>, usize)> {
        let mut idle_steps = 0;
        while self.ranks.iter_mut().any(|rank| !is_over(rank)) {
            let rank = self.random.random_range(0..self.ranks.len());
            // Sometimes one rank takes many steps in a row, so that some ranks get far ahead.
            let steps = if self.random.random_ratio(1, 8) { 50 } else { 1 };
            for _ in 0..steps {
                let moved = if self.random.random_bool(0.5) {
                    self.send_one(rank)
                } else {
                    self.step(rank)
                };
                idle_steps = if moved { 0 } else { idle_steps + 1 };
                assert!(idle_steps < 1_000_000, "the schedule deadlocks");
            }
        }
        assert!(self.wires.iter().flatten().all(VecDeque::is_empty), "messages nobody received");
        self.ranks.into_iter().map(|rank| (rank.vector, rank.messages)).collect()
    }

    fn send_one(&mut self, rank: usize) -> bool {
        let Some((to, span)) = self.ranks[rank].unsent.pop_front() else { return false };
        let data = self.ranks[rank].vector[range(span)].to_vec();
        self.ranks[rank].messages += 1;
        self.wires[rank][to as usize].push_back(data);
        true
    }

    fn step(&mut self, rank: usize) -> bool {
        let Some(step) = self.ranks[rank].schedule.peek().copied() else { return false };
        match step.action {
            Action::Send { to, span } => {
                assert_ne!(to as usize, rank, "a rank sends to itself");
                self.ranks[rank].unsent.push_back((to, span));
            }
            Action::Receive { from, span, buffer, landing } => {
                let Some(data) = self.wires[from as usize][rank].pop_front() else { return false };
                assert_eq!(data.len() as u64, span.elements, "a message of another length");
                if buffer == Buffer::Vector {
                    self.send_overlapping(rank, span);
                }
                let rank = &mut self.ranks[rank];
                let buffer = match buffer {
                    Buffer::Vector => &mut rank.vector,
                    Buffer::Aside => &mut rank.aside,
                };
                land(&mut buffer[range(span)], &data, landing);
            }
            Action::Fold { span } => {
                self.send_overlapping(rank, span);
                let rank = &mut self.ranks[rank];
                land(&mut rank.vector[range(span)], &rank.aside[range(span)], Landing::FoldAsLeft);
            }
        }
        self.ranks[rank].schedule.next();
        true
    }

    /// Completes the sends that can wait no longer, because their span is about to change.
    fn send_overlapping(&mut self, rank: usize, span: Span) {
        while self.ranks[rank].unsent.iter().any(|(_, unsent)| unsent.overlaps(span)) {
            self.send_one(rank);
        }
    }
}

fn is_over(rank: &mut Rank) -> bool {
    rank.unsent.is_empty() && rank.schedule.peek().is_none()
}

fn range(span: Span) -> std::ops::Range<usize> {
    span.first as usize..span.end() as usize
}

fn land(target: &mut [Term], data: &[Term], landing: Landing) {
    for (target, arrived) in target.iter_mut().zip(data) {
        *target = match landing {
            Landing::Store => arrived.clone(),
            Landing::FoldAsLeft => arrived.with(target),
            Landing::FoldAsRight => target.with(arrived),
        };
    }
}

/// What each rank knows of at the end, as a set of ranks. Messages carry what their sender knows of.
pub(crate) fn spread_knowledge(schedules: Vec<Schedule>) -> Vec<u32> {
    let ranks = schedules.len();
    let mut known: Vec<u32> = (0..ranks).map(|rank| 1 << rank).collect();
    let mut wires = vec![VecDeque::new(); ranks * ranks];
    let mut schedules: Vec<_> = schedules.into_iter().map(Iterator::peekable).collect();
    let mut has_moved = true;
    while std::mem::take(&mut has_moved) {
        for rank in (0..ranks).rev() {
            while let Some(step) = schedules[rank].peek() {
                match step.action {
                    Action::Send { to, .. } => {
                        wires[rank * ranks + to as usize].push_back(known[rank]);
                    }
                    Action::Receive { from, .. } => {
                        let wire = &mut wires[from as usize * ranks + rank];
                        let Some(theirs) = wire.pop_front() else { break };
                        known[rank] |= theirs;
                    }
                    Action::Fold { .. } => {}
                }
                schedules[rank].next();
                has_moved = true;
            }
        }
    }
    assert!(schedules.iter_mut().all(|schedule| schedule.peek().is_none()), "a barrier hangs");
    known
}
