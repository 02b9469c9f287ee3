//! Compares every algorithm of every collective with an oracle: every process count from 1 to 17,
//! every root, odd lengths, both orders, and an order of delivery that depends on a seed.

mod common;
mod levels;

use common::{Team, Term};
use tributary_algorithms::{
    Action, Algorithm, Collective, Order, Radices, Schedule, Shape, Split, Step, Unsupported,
};

const RANKS_MAX: u32 = 17;

fn algorithms() -> Vec<Algorithm> {
    let mut all = vec![
        Algorithm::RecursiveDoubling,
        Algorithm::Rabenseifner,
        Algorithm::Ring,
        Algorithm::Binomial,
        Algorithm::Linear,
        Algorithm::Dissemination,
    ];
    for radix in [2, 3, 5, 100] {
        all.push(Algorithm::RecursiveKing { radix });
        all.push(Algorithm::Knomial { radix });
    }
    for radices in [&[17][..], &[5, 4], &[2, 9], &[3, 3, 2], &[2, 2, 2, 2, 2]] {
        let radices = Radices::new(radices).expect("radices");
        all.push(Algorithm::MixedRadix { radices });
    }
    all
}

/// Lengths with and without a remainder, and shorter than the ranks; fewer of them where every root
/// is tried too.
fn lengths(ranks: u32, is_rooted: bool) -> Vec<u64> {
    let ranks = u64::from(ranks);
    let mut lengths = vec![0, 1, ranks + 3];
    if !is_rooted {
        lengths.extend([2, ranks.saturating_sub(1), ranks, 2 * ranks + 3]);
    }
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Runs a collective under all algorithms that implement it; `check` gets each rank's result.
fn for_all(
    collective: impl Fn(u32) -> Collective,
    is_rooted: bool,
    has: &[&str],
    check: impl Fn(Algorithm, Shape, u32, &[Vec<Term>]),
) {
    let mut seen = std::collections::BTreeSet::new();
    for algorithm in algorithms() {
        for order in [Order::Any, Order::Rank] {
            for ranks in 1..=RANKS_MAX {
                for root in 0..if is_rooted { ranks } else { 1 } {
                    for elements in lengths(ranks, is_rooted) {
                        let shape = Shape { ranks, elements, order };
                        let collective = collective(root);
                        match Schedule::new(algorithm, collective, shape, 0) {
                            Ok(_) => {}
                            Err(Unsupported::OutOfOrder { .. }) if order == Order::Rank => continue,
                            Err(Unsupported::Combination { .. }) => continue,
                            Err(error) => panic!("{algorithm:?} {collective:?}: {error}"),
                        }
                        seen.insert(algorithm.name());
                        let seed = u64::from(ranks) << 32 | u64::from(root) << 16 | elements;
                        let results: Vec<_> = Team::new(algorithm, collective, shape, seed)
                            .run()
                            .into_iter()
                            .map(|(vector, _)| vector)
                            .collect();
                        check(algorithm, shape, root, &results);
                    }
                }
            }
        }
    }
    let mut has: Vec<_> = has.to_vec();
    has.sort_unstable();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), has, "forms that exist");
}

/// Asserts that `term` combines the ranks `0..ranks`, each once, in the requested order.
fn check_term(algorithm: Algorithm, shape: Shape, element: u64, term: &Term) {
    let mut leaves = term.leaves();
    let mut expected: Vec<_> = (0..shape.ranks).map(|rank| Term::leaf(rank, element).0).collect();
    if shape.order == Order::Any {
        leaves.sort_unstable();
        expected.sort_unstable();
    }
    assert_eq!(leaves, expected, "{algorithm:?} {shape:?} element {element}");
}

const REDUCE: &[&str] = &["binomial", "knomial", "rabenseifner", "ring", "linear"];

#[test]
fn allreduce_combines_every_rank_once_and_equally_everywhere() {
    let has = [REDUCE, &["recursive_doubling", "recursive_king", "mixed_radix"]].concat();
    for_all(
        |_| Collective::Allreduce,
        false,
        &has,
        |algorithm, shape, _, results| {
            for result in results {
                assert_eq!(
                    result, &results[0],
                    "{algorithm:?} {shape:?} bits differ between ranks"
                );
            }
            for (element, term) in results[0].iter().enumerate() {
                check_term(algorithm, shape, element as u64, term);
            }
        },
    );
}

#[test]
fn reduce_reaches_every_root() {
    for_all(
        |root| Collective::Reduce { root },
        true,
        REDUCE,
        |algorithm, shape, root, results| {
            for (element, term) in results[root as usize].iter().enumerate() {
                check_term(algorithm, shape, element as u64, term);
            }
        },
    );
}

#[test]
fn broadcast_reaches_everyone_from_every_root() {
    let has = ["binomial", "knomial", "ring", "linear"];
    for_all(
        |root| Collective::Broadcast { root },
        true,
        &has,
        |_, shape, root, results| {
            let expected: Vec<_> =
                (0..shape.elements).map(|element| Term::leaf(root, element)).collect();
            for result in results {
                assert_eq!(result, &expected);
            }
        },
    );
}

#[test]
fn reduce_scatter_leaves_each_rank_its_part() {
    let has = ["ring", "linear", "recursive_doubling", "recursive_king", "mixed_radix"];
    for_all(
        |_| Collective::ReduceScatter,
        false,
        &has,
        |algorithm, shape, _, results| {
            let split = Split::new(shape.elements, u64::from(shape.ranks));
            for (rank, result) in results.iter().enumerate() {
                let part = split.part(rank as u64);
                for element in part.first..part.end() {
                    check_term(algorithm, shape, element, &result[element as usize]);
                }
            }
        },
    );
}

#[test]
fn allgather_puts_each_part_in_its_place() {
    let has = ["dissemination", "ring", "linear"];
    for_all(
        |_| Collective::Allgather,
        false,
        &has,
        |_, shape, _, results| {
            let split = Split::new(shape.elements, u64::from(shape.ranks));
            let expected: Vec<_> = (0..shape.ranks)
                .flat_map(|rank| {
                    let part = split.part(u64::from(rank));
                    (part.first..part.end()).map(move |element| Term::leaf(rank, element))
                })
                .collect();
            for result in results {
                assert_eq!(result, &expected);
            }
        },
    );
}

/// Asserts that the result of each rank combines the ranks `0..end`, in this order.
fn check_prefixes(shape: Shape, results: &[Vec<Term>], end: impl Fn(u32) -> u32) {
    for rank in 0..shape.ranks {
        let expected = |element| -> Vec<_> {
            (0..end(rank)).map(|before| Term::leaf(before, element).0).collect()
        };
        for (element, term) in results[rank as usize].iter().enumerate() {
            if end(rank) > 0 {
                assert_eq!(term.leaves(), expected(element as u64), "{shape:?} rank {rank}");
            }
        }
    }
}

#[test]
fn scans_combine_what_comes_before() {
    let has = ["recursive_doubling", "recursive_king"];
    for_all(
        |_| Collective::Scan,
        false,
        &has,
        |_, shape, _, results| {
            check_prefixes(shape, results, |rank| rank + 1);
        },
    );
    for_all(
        |_| Collective::Exscan,
        false,
        &has,
        |_, shape, _, results| {
            check_prefixes(shape, results, |rank| rank);
        },
    );
}

/// A barrier is correct if every rank knows of every rank's arrival when it leaves. Messages carry the
/// set of ranks that their sender knows of.
#[test]
fn no_rank_leaves_a_barrier_before_all_have_entered() {
    let mut checked = 0;
    for algorithm in algorithms() {
        for ranks in 1..=RANKS_MAX {
            let shape = Shape { ranks, elements: 7, order: Order::Any };
            let schedules: Result<Vec<_>, _> = (0..ranks)
                .map(|rank| Schedule::new(algorithm, Collective::Barrier, shape, rank))
                .collect();
            let Ok(schedules) = schedules else { continue };
            checked += 1;
            for knowledge in common::spread_knowledge(schedules) {
                assert_eq!(knowledge, (1 << ranks) - 1, "{algorithm:?} {ranks}");
            }
        }
    }
    // All but Rabenseifner and the ring.
    assert_eq!(checked, (algorithms().len() as u32 - 2) * RANKS_MAX);
}

/// The rules about rounds that executors rely on.
#[test]
fn rounds_never_go_back_and_begin_with_their_sends() {
    for algorithm in algorithms() {
        for collective in [
            Collective::Allreduce,
            Collective::Reduce { root: 5 },
            Collective::Broadcast { root: 5 },
            Collective::Barrier,
            Collective::ReduceScatter,
            Collective::Allgather,
            Collective::Scan,
            Collective::Exscan,
        ] {
            let shape = Shape { ranks: 13, elements: 40, order: Order::Any };
            for rank in 0..shape.ranks {
                let Ok(schedule) = Schedule::new(algorithm, collective, shape, rank) else {
                    continue;
                };
                let (mut round, mut is_sending) = (0, true);
                for step in schedule {
                    assert!(step.round == round || step.round == round + 1);
                    is_sending |= step.round > round;
                    round = step.round;
                    match step.action {
                        Action::Send { .. } => assert!(is_sending, "{algorithm:?} {collective:?}"),
                        Action::Receive { .. } | Action::Fold { .. } => is_sending = false,
                    }
                }
            }
        }
    }
}

/// Recursive doubling, Rabenseifner and trees take a logarithmic number of rounds, and a schedule's
/// memory doesn't depend on the number of ranks.
#[test]
fn a_hundred_thousand_ranks_take_no_tables() {
    assert!(size_of::<Schedule>() <= 512, "{} bytes", size_of::<Schedule>());
    let shape = Shape { ranks: 100_000, elements: 1 << 20, order: Order::Any };
    for (algorithm, rounds_max) in [
        (Algorithm::RecursiveDoubling, 18),
        (Algorithm::RecursiveKing { radix: 8 }, 8),
        (Algorithm::Rabenseifner, 34),
        (Algorithm::Binomial, 35),
    ] {
        for rank in [0, 1, 65_535, 65_536, 99_999] {
            let schedule = Schedule::new(algorithm, Collective::Allreduce, shape, rank);
            let last = schedule.expect("a schedule").last().expect("a step");
            assert!(last.round < rounds_max, "{algorithm:?} rank {rank}: round {}", last.round);
        }
    }
}

/// How many elements a rank's schedule moves, as `of_action` counts them.
fn elements(
    algorithm: Algorithm,
    collective: Collective,
    shape: Shape,
    rank: u32,
    of_action: impl Fn(Action) -> u64,
) -> u64 {
    let schedule = Schedule::new(algorithm, collective, shape, rank).expect("a schedule");
    schedule.map(|step| of_action(step.action)).sum()
}

/// Rabenseifner and the ring send 2 (p - 1) / p vectors per rank.
#[test]
fn long_vector_algorithms_send_each_element_twice_at_most() {
    for (algorithm, ranks) in [(Algorithm::Rabenseifner, 8), (Algorithm::Ring, 7)] {
        let shape = Shape { ranks, elements: 5_600, order: Order::Any };
        for rank in 0..ranks {
            let sent =
                elements(algorithm, Collective::Allreduce, shape, rank, |action| match action {
                    Action::Send { span, .. } => span.elements,
                    _ => 0,
                });
            assert_eq!(sent, 2 * 5_600 * u64::from(ranks - 1) / u64::from(ranks));
        }
    }
}

/// As few as there can be: every rank but the root receives the vector once.
#[test]
fn a_ring_broadcasts_each_element_once_to_each_rank() {
    for (ranks, root) in [(2, 1), (3, 0), (7, 4)] {
        let shape = Shape { ranks, elements: 5_600, order: Order::Any };
        for rank in 0..ranks {
            let collective = Collective::Broadcast { root };
            let received =
                elements(Algorithm::Ring, collective, shape, rank, |action| match action {
                    Action::Receive { span, .. } => span.elements,
                    _ => 0,
                });
            assert_eq!(received, if rank == root { 0 } else { 5_600 }, "rank {rank} of {ranks}");
        }
    }
}

/// One message to each other block of a group, and no more rounds than levels, however many ranks there are.
#[test]
fn levels_take_one_round_each_for_any_number_of_ranks() {
    for ranks in 2..=100 {
        for radices in Radices::candidates(ranks, 16) {
            let shape = Shape { ranks, elements: 1, order: Order::Rank };
            let levels = radices.iter().count() as u32;
            let others: u32 = radices.iter().map(|radix| radix - 1).sum();
            for rank in 0..ranks {
                let algorithm = Algorithm::MixedRadix { radices };
                let schedule = Schedule::new(algorithm, Collective::Allreduce, shape, rank);
                let steps: Vec<_> = schedule.expect("a schedule").collect();
                assert!(steps.iter().all(|step| step.round < levels), "{radices}, {ranks} ranks");
                let received = |step: &&Step| matches!(step.action, Action::Receive { .. });
                let received = steps.iter().filter(received).count() as u32;
                assert!(received <= others, "{radices}, {ranks} ranks: {received}");
            }
        }
    }
}

#[test]
fn impossible_requests_are_refused() {
    let shape = Shape { ranks: 4, elements: 10, order: Order::Rank };
    let refusal = |algorithm, collective, rank| {
        Schedule::new(algorithm, collective, shape, rank).expect_err("a refusal")
    };
    let allreduce = Collective::Allreduce;
    assert_eq!(
        refusal(Algorithm::Ring, allreduce, 0),
        Unsupported::OutOfOrder { algorithm: Algorithm::Ring }
    );
    assert_eq!(
        refusal(Algorithm::Binomial, allreduce, 4),
        Unsupported::NoSuchRank { rank: 4, ranks: 4 }
    );
    assert_eq!(
        refusal(Algorithm::Binomial, Collective::Reduce { root: 9 }, 0),
        Unsupported::NoSuchRank { rank: 9, ranks: 4 }
    );
    assert_eq!(
        refusal(Algorithm::Knomial { radix: 1 }, allreduce, 0),
        Unsupported::Radix { radix: 1 }
    );
    let radices = Radices::new(&[3]).expect("radices");
    assert_eq!(
        refusal(Algorithm::MixedRadix { radices }, allreduce, 0),
        Unsupported::Room { radices, ranks: 4 }
    );
    let algorithm = Algorithm::RecursiveDoubling;
    let collective = Collective::Broadcast { root: 0 };
    assert_eq!(
        refusal(algorithm, collective, 0),
        Unsupported::Combination { algorithm, collective }
    );
}
