//! Tests that the swarm finds bugs. `cargo test -p tributary-swarm --features planted-bugs` plants
//! one bug after the other in the machines; the swarm has to find each within 10,000 seeds.

#![cfg(feature = "planted-bugs")]

use tributary_protocol::planted::{Bug, plant};
use tributary_swarm::{self as swarm, SweepOptions, Violation};

/// Seeds of one sweep. The search stops after a sweep with a failing seed.
const BITE: u64 = 25;
const SEEDS_MAX: u64 = 10_000;
/// Seeds that must be clean once nothing is planted.
const CLEAN: u64 = 100;

/// First seed of the search for a bug: the one that found it first. If the scenarios change, the
/// search takes longer and wraps around to cover all 10,000 seeds.
fn first_seed(bug: Bug) -> u64 {
    match bug {
        Bug::DoubleCount => 3020,
        Bug::DoubleDatagram => 251,
        Bug::SharedLock => 265,
        Bug::LostLock => 254,
        Bug::UnfairLock => 88,
        Bug::SparedCopy => 18,
    }
}

fn first_failure(bug: Bug) -> Option<swarm::Outcome> {
    let bites = SEEDS_MAX / BITE;
    let first = first_seed(bug) / BITE;
    (0..bites).map(|bite| (first + bite) % bites).find_map(|bite| {
        let seeds = bite * BITE..(bite + 1) * BITE;
        let sweep = swarm::sweep(&SweepOptions { seeds, failures_max: 1 }, |_, _| {});
        sweep.failures.into_iter().next()
    })
}

fn is_fitting(bug: Bug, violation: &Violation) -> bool {
    match bug {
        Bug::DoubleCount | Bug::DoubleDatagram => {
            matches!(violation, Violation::WrongResult { .. })
        }
        // Two groups in one memory can show in many ways.
        Bug::SharedLock => true,
        Bug::UnfairLock => matches!(violation, Violation::Lock { .. }),
        Bug::LostLock | Bug::SparedCopy => {
            use Violation::{Restless, Starved, Stuck};
            matches!(violation, Stuck { .. } | Starved { .. } | Restless { .. })
        }
    }
}

/// One test, because a bug is planted for the whole process.
#[test]
fn every_planted_bug_is_found_within_ten_thousand_seeds() {
    for bug in Bug::ALL {
        plant(Some(bug));
        let failure = first_failure(bug);
        let failure = failure.unwrap_or_else(|| panic!("the swarm is broken: it misses {bug:?}"));
        let violation = failure.violation.expect("a failure is a violation");
        println!("{bug:?}: seed {}: {violation}", failure.seed);
        assert!(is_fitting(bug, &violation), "{bug:?}: {violation}");
        if bug == Bug::DoubleCount {
            let story = swarm::explain(failure.seed).expect("a failing seed fails again");
            assert_eq!(story.seed, failure.seed);
            assert!(story.lines.iter().any(|line| line.contains("VIOLATION")), "{:?}", story.lines);
        }
    }
    plant(None);
    assert_eq!(first_failure_within(CLEAN), None, "what was planted is gone");
}

fn first_failure_within(seeds: u64) -> Option<u64> {
    let sweep = swarm::sweep(&SweepOptions { seeds: 0..seeds, failures_max: 1 }, |_, _| {});
    sweep.failures.first().map(|failure| failure.seed)
}
