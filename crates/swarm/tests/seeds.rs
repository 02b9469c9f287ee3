//! The swarm over a range of seeds, over the seeds that once failed, and over one seed twice.
//! `planted.rs` tests that it finds planted bugs.

mod page;

use std::collections::BTreeSet;

use tributary_swarm::{self as swarm, FAULT_NAMES, STATE_NAMES, SweepOptions};

/// Seeds that run with every `cargo test`.
const SMOKE: std::ops::Range<u64> = 0..800;

/// Seeds that once failed: number, then what they found.
const REGRESSIONS: &str = include_str!("seeds.txt");

fn fail_with_story(seed: u64) -> ! {
    let story = swarm::explain(seed).expect("a failing seed fails again");
    panic!("seed {}: {}\n{}", story.seed, story.violation, story.lines.join("\n"));
}

#[test]
fn a_smoke_range_is_clean_and_sees_every_kind_of_fault() {
    let options = SweepOptions { seeds: SMOKE, failures_max: 1 };
    let sweep = swarm::sweep(&options, |_, _| {});
    if let Some(failure) = sweep.failures.first() {
        fail_with_story(failure.seed);
    }
    assert_eq!(sweep.seeds, SMOKE.end - SMOKE.start);
    for (name, times) in STATE_NAMES.iter().zip(sweep.states) {
        assert!(times > 0, "no {name} in {SMOKE:?}");
    }
    for (name, hits) in FAULT_NAMES.iter().zip(sweep.faults) {
        assert!(hits > 0, "no {name} in {SMOKE:?}");
    }
    assert!(sweep.trees_regained > 0, "members go back into trees");
    assert!(sweep.completions_over_links > 0, "and go on without one meanwhile");
    assert!(sweep.segments_in_kernel > 100, "some of it inside kernels");
    assert!(sweep.groups_of_next_build > 0, "and some between newer builds");
    assert!(sweep.completions_in_groups > 1_000, "and replicated groups have their sums");
    assert!(sweep.groups_failed > 0, "faults cut groups short");
    assert!(sweep.groups > 5 * sweep.groups_failed, "and most work all the same");
}

#[test]
fn seeds_that_found_something_stay_clean() {
    let mut count = 0;
    for line in REGRESSIONS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (seed, what) = line.split_once(' ').expect("a line is a seed and what it found");
        let seed = seed.parse().expect("a line starts with a seed");
        assert!(!what.trim().is_empty(), "seed {seed}: say what it found");
        if swarm::run(seed).violation.is_some() {
            fail_with_story(seed);
        }
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn equal_seeds_give_equal_traces() {
    let mut hashes = BTreeSet::new();
    for seed in 0..40 {
        let outcome = swarm::run(seed);
        assert_eq!(outcome, swarm::run(seed));
        hashes.insert(outcome.trace_hash);
    }
    assert_eq!(hashes.len(), 40, "other seeds give other traces");
}

#[test]
fn the_page_names_the_faults_and_states_and_no_others() {
    let sorted = |names: &[&'static str]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names
    };
    let (ranks, groups) = STATE_NAMES.split_at(tributary_swarm_hosts::STATE_NAMES.len());
    let tables = [
        ("Faults", &FAULT_NAMES[..]),
        ("Ranks on several hosts", ranks),
        ("Replicated groups", groups),
    ];
    for (heading, known) in tables {
        let named: Vec<&str> = page::table(heading).iter().map(|row| row[0]).collect();
        assert_eq!(sorted(&named), sorted(known), "{heading}");
    }
}
