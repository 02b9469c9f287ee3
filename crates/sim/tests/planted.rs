//! Is the swarm able to find a bug? `cargo test -p tributary-sim --features planted-double-count`
//! makes nodes count a repeated contribution twice, and asks the swarm to find it.

#![cfg(feature = "planted-double-count")]

use tributary_sim::swarm::{self, SweepOptions, Violation};

#[test]
fn a_planted_double_count_is_found_within_ten_thousand_seeds() {
    let options = SweepOptions { seeds: 0..10_000, failures_max: 1 };
    let sweep = swarm::sweep(&options, |_, _| {});
    let failure = sweep.failures.first().expect("the swarm is broken: it misses a planted bug");
    assert!(matches!(failure.violation, Some(Violation::WrongResult { .. })), "{failure:?}");
    let story = swarm::explain(failure.seed).expect("a failing seed fails again");
    assert_eq!(story.seed, failure.seed);
    assert!(story.lines.iter().any(|line| line.contains("VIOLATION")), "{:?}", story.lines);
}
