//! Compares exchanges over the levels of a plan with an oracle that folds group by group: random plans with uneven
//! groups, both divisions, and an order of delivery that depends on a seed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{
    Action, Buffer, Collective, Division, Landing, Schedule, Span, Unsupported,
};

use crate::common::{self, Team, Term};

const DIVISIONS: [Division; 2] = [Division::Whole, Division::Parts];

/// A plan with groups of random sizes.
fn random_plan(hosts: u32, random: &mut Pcg64Mcg) -> Plan {
    let mut levels = Vec::new();
    let mut left = hosts;
    while left > 1 {
        let most = random.random_range(2..=left.min(9));
        let mut sizes: Vec<u32> = Vec::new();
        let mut rest = left;
        while rest > 0 {
            // At least half of the largest: so the levels are few enough for the most hosts.
            let size = random.random_range(most.div_ceil(2)..=most).min(rest);
            sizes.push(size);
            rest -= size;
        }
        if sizes.iter().all(|size| *size == 1) {
            continue;
        }
        left = sizes.len() as u32;
        levels.push(sizes);
        if levels.len() == 8 && left > 1 {
            levels.push(vec![left]);
            left = 1;
        }
    }
    Plan::new(hosts, &levels).expect("a plan")
}

/// What the plan's order gives: the members of each group from the first to the last, level by level.
fn oracle<T: Clone>(plan: &Plan, leaves: Vec<T>, fold: impl Fn(&T, &T) -> T) -> T {
    let mut values = leaves;
    for level in 0..plan.levels() {
        let mut rest = values.as_slice();
        let mut sums = Vec::new();
        for size in plan.group_sizes(level) {
            let (group, behind) = rest.split_at(size as usize);
            sums.push(group[1..].iter().fold(group[0].clone(), |sum, value| fold(&sum, value)));
            rest = behind;
        }
        values = sums;
    }
    assert_eq!(values.len(), 1);
    values.remove(0)
}

fn schedules(
    plan: &Arc<Plan>,
    division: Division,
    collective: Collective,
    elements: u64,
) -> Vec<Schedule> {
    let schedule = |rank| Schedule::over_levels(plan, division, collective, elements, rank);
    (0..plan.hosts()).map(|rank| schedule(rank).expect("a schedule")).collect()
}

#[test]
fn every_host_folds_in_the_plans_order() {
    for seed in 0..400 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let hosts = 1 + seed as u32 % 40;
        let plan = Arc::new(random_plan(hosts, &mut random));
        let elements = random.random_range(0..=2 * u64::from(hosts) + 3).min(20);
        let expected: Vec<Term> = (0..elements)
            .map(|element| {
                let leaves = (0..hosts).map(|rank| Term::leaf(rank, element)).collect();
                oracle(&plan, leaves, Term::with)
            })
            .collect();
        for division in DIVISIONS {
            let schedules = schedules(&plan, division, Collective::Allreduce, elements);
            for (rank, (result, _)) in Team::of(schedules, elements, seed).run().iter().enumerate()
            {
                assert_eq!(result, &expected, "seed {seed}, {division:?}, host {rank}, {plan:?}");
            }
        }
    }
}

#[test]
fn no_host_leaves_a_barrier_before_all_have_entered() {
    for seed in 0..100 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let hosts = 1 + seed as u32 % 25;
        let plan = Arc::new(random_plan(hosts, &mut random));
        let schedules = schedules(&plan, Division::Whole, Collective::Barrier, 7);
        for knowledge in common::spread_knowledge(schedules) {
            assert_eq!(knowledge, (1 << hosts) - 1, "seed {seed}, {plan:?}");
        }
    }
}

/// Floats whose sums depend on the order, up to the most hosts.
#[test]
fn sums_of_many_hosts_have_the_oracles_bits() {
    for (seed, hosts) in [100, 1000, 4096].into_iter().enumerate() {
        let mut random = Pcg64Mcg::seed_from_u64(seed as u64);
        let plan = Arc::new(random_plan(hosts, &mut random));
        let elements = 37;
        let hostile = |_: u32| {
            let mut of_host = || {
                let scale = random.random_range(-30..30);
                (random.random_range(1.0..2.0_f32)) * 2.0_f32.powi(scale)
            };
            (0..elements).map(|_| of_host()).collect::<Vec<f32>>()
        };
        let vectors: Vec<Vec<f32>> = (0..hosts).map(hostile).collect();
        let expected: Vec<u32> = (0..elements)
            .map(|element| {
                let leaves = vectors.iter().map(|vector| vector[element]).collect();
                oracle(&plan, leaves, |left, right| left + right).to_bits()
            })
            .collect();
        for division in DIVISIONS {
            let schedules = schedules(&plan, division, Collective::Allreduce, elements as u64);
            for (host, result) in run(schedules, vectors.clone()).into_iter().enumerate() {
                let bits: Vec<u32> = result.into_iter().map(f32::to_bits).collect();
                assert_eq!(bits, expected, "{division:?}, host {host} of {hosts}");
            }
        }
    }
}

/// Runs schedules one step at a time, with sends that copy.
fn run(schedules: Vec<Schedule>, mut vectors: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let range = |span: Span| span.first as usize..span.end() as usize;
    let mut asides = vectors.clone();
    let mut schedules: Vec<_> = schedules.into_iter().map(Iterator::peekable).collect();
    let mut wires: HashMap<(u32, u32), VecDeque<Vec<f32>>> = HashMap::new();
    let mut has_moved = true;
    while std::mem::take(&mut has_moved) {
        for host in 0..vectors.len() {
            while let Some(step) = schedules[host].peek() {
                match step.action {
                    Action::Send { to, span } => {
                        let data = vectors[host][range(span)].to_vec();
                        wires.entry((host as u32, to)).or_default().push_back(data);
                    }
                    Action::Receive { from, span, buffer, landing } => {
                        let wire = wires.entry((from, host as u32)).or_default();
                        let Some(data) = wire.pop_front() else { break };
                        let of = if buffer == Buffer::Vector { &mut vectors } else { &mut asides };
                        land(&mut of[host][range(span)], &data, landing);
                    }
                    Action::Fold { span } => {
                        let aside = asides[host][range(span)].to_vec();
                        land(&mut vectors[host][range(span)], &aside, Landing::FoldAsLeft);
                    }
                }
                schedules[host].next();
                has_moved = true;
            }
        }
    }
    assert!(schedules.iter_mut().all(|schedule| schedule.peek().is_none()), "a host hangs");
    assert!(wires.values().all(VecDeque::is_empty), "messages nobody received");
    vectors
}

fn land(target: &mut [f32], data: &[f32], landing: Landing) {
    assert_eq!(target.len(), data.len());
    for (target, arrived) in target.iter_mut().zip(data) {
        *target = match landing {
            Landing::Store => *arrived,
            Landing::FoldAsLeft => *arrived + *target,
            Landing::FoldAsRight => *target + *arrived,
        };
    }
}

/// A round a level; divided, two, and each element is sent as often as a ring sends it.
#[test]
fn a_level_takes_a_round_and_parts_take_few_bytes() {
    let plan = Plan::new(16 * 8, &[vec![16; 8], vec![8]]).map(Arc::new).expect("a plan");
    for (division, rounds, sent) in
        [(Division::Whole, 2, 1280 * (15 + 7)), (Division::Parts, 4, 2 * (1280 - 10))]
    {
        for schedule in schedules(&plan, division, Collective::Allreduce, 1280) {
            assert!(size_of_val(&schedule) <= 512, "{} bytes", size_of_val(&schedule));
            let steps: Vec<_> = schedule.collect();
            assert_eq!(steps.last().expect("a step").round + 1, rounds);
            let elements = steps.iter().map(|step| match step.action {
                Action::Send { span, .. } => span.elements,
                _ => 0,
            });
            assert_eq!(elements.sum::<u64>(), sent, "{division:?}");
        }
    }
}

#[test]
fn forms_that_do_not_exist_are_refused() {
    let plan = Plan::new(4, &[vec![4]]).map(Arc::new).expect("a plan");
    let of = |division, collective, rank| {
        Schedule::over_levels(&plan, division, collective, 8, rank).expect_err("a refusal")
    };
    for (division, collective) in [
        (Division::Whole, Collective::Scan),
        (Division::Parts, Collective::Barrier),
        (Division::Parts, Collective::ReduceScatter),
    ] {
        let refusal = Unsupported::Levels { division, collective };
        assert_eq!(of(division, collective, 0), refusal);
    }
    let missing = Unsupported::NoSuchRank { rank: 4, ranks: 4 };
    assert_eq!(of(Division::Whole, Collective::Allreduce, 4), missing);
}
