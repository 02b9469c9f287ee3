//! The swarm over a few seeds, over the seeds that once found something, and over one seed twice.

use tributary_sim::swarm::{self, SweepOptions};

/// Seeds that run with every `cargo test`.
const SMOKE: std::ops::Range<u64> = 0..300;

#[test]
fn a_smoke_range_is_clean() {
    let options = SweepOptions { seeds: SMOKE, failures_max: 1 };
    let sweep = swarm::sweep(&options, |_, _| {});
    if let Some(failure) = sweep.failures.first() {
        let story = swarm::explain(failure.seed).expect("a failing seed fails again");
        panic!("seed {}: {}\n{}", story.seed, story.violation, story.lines.join("\n"));
    }
    assert_eq!(sweep.seeds, SMOKE.end - SMOKE.start);
    assert!(sweep.groups_failed > 0, "faults hit something");
    assert!(sweep.completions > 10 * sweep.groups_failed, "and most things work all the same");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..40 {
        assert_eq!(swarm::run(seed), swarm::run(seed));
    }
    let hashes: std::collections::BTreeSet<u64> =
        (0..40).map(|seed| swarm::run(seed).trace_hash).collect();
    assert_eq!(hashes.len(), 40, "other seeds give other traces");
}
