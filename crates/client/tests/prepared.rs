//! Goal: operations that are started again and again give what single ones give, whatever comes between
//! start and end. Method: ranks are threads of this process; several prepared operations and single ones are
//! mixed by a seed, with other values in every round.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod ranks;

use std::cell::UnsafeCell;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use ranks::{ThreadRanks, on_all_ranks};
use tributary_client::report::CounterRegistry;
use tributary_client::{
    Bootstrap, Collective, CollectiveError, Communicator, Context, Operation, Prepared, Settings,
    Verdict,
};
use tributary_wire::{Datatype, Operator};

fn communicator(
    ranks: &mut ThreadRanks,
    registry: &CounterRegistry,
    take_turns: bool,
) -> Communicator {
    let settings = Settings::from_environment(|_| None).unwrap();
    let mut context = Context::open(ranks, settings).unwrap();
    if take_turns {
        // SAFETY: each rank of these tests is one thread.
        unsafe { context.callers_take_turns() };
    }
    let counters = registry.open("prepared", ranks.size(), ranks.rank() == 0);
    let go_on = Arc::new(|| Verdict::GoOn);
    Communicator::create(&Arc::new(context), ranks, &counters, go_on).unwrap()
}

/// A sum that is started many times, and its buffers.
struct Sum {
    prepared: Prepared,
    source: Box<[UnsafeCell<i64>]>,
    target: Box<[UnsafeCell<i64>]>,
    round: i64,
    is_active: bool,
}

fn cells(number: usize) -> Box<[UnsafeCell<i64>]> {
    (0..number).map(|_| UnsafeCell::new(-1)).collect()
}

impl Sum {
    fn new(communicator: &Communicator, elements: usize) -> Self {
        let (source, target) = (cells(elements), cells(elements));
        let operation = Operation {
            collective: Collective::Allreduce,
            datatype: Datatype::I64,
            operator: Operator::Sum,
            elements: elements as u64,
            source: source.as_ptr().cast(),
            target: target.as_ptr().cast_mut().cast(),
            ..Operation::BARRIER
        };
        // SAFETY: it has no blocks.
        let prepared = unsafe { communicator.prepare(operation) }.unwrap();
        Self { prepared, source, target, round: 0, is_active: false }
    }

    fn start(&mut self, rank: u32) {
        self.round += 1;
        for (index, value) in self.source.iter().enumerate() {
            // SAFETY: the last start is over, so nobody else uses the source.
            unsafe { *value.get() = self.round * 1000 + i64::from(rank) + index as i64 };
        }
        // SAFETY: the buffers live as long as the prepared operation, and are used again only after its
        // end.
        unsafe { self.prepared.start() };
        self.is_active = true;
    }

    fn end(&mut self, ranks: u32, by_request: bool) {
        if by_request {
            self.prepared.hand_over();
            self.prepared.request().wait().unwrap();
        } else {
            let mut outcome = self.prepared.wait_shortly();
            while outcome.is_none() {
                std::thread::yield_now();
                outcome = self.prepared.poll();
            }
            outcome.unwrap().unwrap();
        }
        self.is_active = false;
        let ranks = i64::from(ranks);
        for (index, value) in self.target.iter().enumerate() {
            let expected = (self.round * 1000 + index as i64) * ranks + ranks * (ranks - 1) / 2;
            // SAFETY: the operation is over.
            let got = unsafe { *value.get() };
            assert_eq!(got, expected, "round {} element {index}", self.round);
        }
    }
}

/// One random mix. Ranks start the same in the same order, and end it in orders of their own.
fn mix(ranks: &mut ThreadRanks, seed: u64, take_turns: bool) {
    let communicator = communicator(ranks, &CounterRegistry::default(), take_turns);
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut common = Pcg64Mcg::seed_from_u64(seed);
    let mut own = Pcg64Mcg::seed_from_u64(seed + 1 + u64::from(rank));
    let mut sums: Vec<Sum> =
        [1, 1, 7, 500, 60_001].map(|elements| Sum::new(&communicator, elements)).into();
    for _ in 0..200 {
        let chosen = common.random_range(0..sums.len());
        if sums[chosen].is_active {
            sums[chosen].end(size, own.random());
        }
        sums[chosen].start(rank);
        match common.random_range(0..6) {
            // SAFETY: a barrier has no buffers.
            0 => unsafe { communicator.run(&Operation::BARRIER) }.unwrap(),
            // SAFETY: as above.
            1 => unsafe { communicator.start(Operation::BARRIER) }.unwrap().wait().unwrap(),
            2 => communicator.barrier().unwrap(),
            _ => {}
        }
        if own.random() {
            sums[chosen].end(size, own.random());
        }
    }
    for sum in sums.iter_mut().rev().filter(|sum| sum.is_active) {
        sum.end(size, own.random());
    }
}

#[test]
fn starts_mix_with_each_other_and_with_single_operations() {
    for (size, seed) in [(1, 11), (2, 12), (2, 13), (3, 14), (4, 15), (9, 16)] {
        for take_turns in [true, false] {
            on_all_ranks(size, move |mut ranks| mix(&mut ranks, seed, take_turns));
        }
    }
}

/// In the state in which an exchange of two ranks is, and in that of any other group.
#[test]
fn a_short_operation_ends_at_the_others_without_a_call_of_its_rank() {
    for size in [2, 3] {
        on_all_ranks(size, move |mut ranks| {
            let communicator = communicator(&mut ranks, &CounterRegistry::default(), true);
            let mut sum = Sum::new(&communicator, 1);
            for _ in 0..3 {
                sum.start(ranks.rank());
                if ranks.rank() != 0 {
                    sum.end(size, false);
                }
                ranks.allgather(&[0], &mut vec![0; size as usize]).unwrap();
                if ranks.rank() == 0 {
                    sum.end(size, false);
                }
            }
        });
    }
}

#[test]
fn every_start_is_counted() {
    let registry = Arc::new(CounterRegistry::default());
    let seen = Arc::clone(&registry);
    on_all_ranks(2, move |mut ranks| {
        let communicator = communicator(&mut ranks, &registry, true);
        let mut sum = Sum::new(&communicator, 1);
        for _ in 0..5 {
            sum.start(ranks.rank());
            sum.end(2, false);
        }
    });
    assert_eq!(seen.report().in_host, 5);
}

/// Posted before and after the communicator was given up.
#[test]
fn a_communicator_given_up_ends_what_is_started() {
    on_all_ranks(2, |mut ranks| {
        let communicator = communicator(&mut ranks, &CounterRegistry::default(), true);
        let sum = Sum::new(&communicator, 1);
        if ranks.rank() == 0 {
            // SAFETY: the buffers are not used any more.
            unsafe { sum.prepared.start() };
        }
        ranks.allgather(&[0], &mut [0; 2]).unwrap();
        if ranks.rank() == 1 {
            communicator.give_up();
            // SAFETY: as above.
            unsafe { sum.prepared.start() };
        }
        for _ in 0..2 {
            let mut outcome = sum.prepared.wait_shortly();
            while outcome.is_none() {
                outcome = sum.prepared.poll();
            }
            assert!(matches!(outcome, Some(Err(CollectiveError::GivenUp { .. }))), "{outcome:?}");
            // SAFETY: as above.
            unsafe { sum.prepared.start() };
        }
    });
}
