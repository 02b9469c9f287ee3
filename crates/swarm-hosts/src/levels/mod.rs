//! Hosts in replicated groups of several levels, over datagrams that get lost, while some of them die, leave or compute.
//!
//! A third system of each seed. The machine is the product's ([`tributary_replicated::Levels`]). Sockets, links, payload and time
//! are modelled. What a driver must do besides is small: keep payload where the machine says, tell all others of a failure, and
//! answer them while its program computes.

mod host;
mod oracle;
mod scenario;
mod states;
mod system;
mod violation;

use scenario::Scenario;
use system::System;

pub use states::STATE_NAMES;
pub use violation::Violation;

/// What came of a run.
#[derive(Default)]
pub struct Report {
    /// What must not happen, if it has.
    pub violation: Option<Violation>,
    /// Hash of what arrived where, and when.
    pub trace_hash: u64,
    /// Events that were processed.
    pub steps: u64,
    /// Operations that completed, counted at every host.
    pub completions: u64,
    /// How often each state of [`STATE_NAMES`] was come to.
    pub states: [u64; STATE_NAMES.len()],
    /// What was drawn, and what happened, if that is kept.
    pub lines: Vec<String>,
}

/// Runs the system of a seed.
#[must_use]
pub fn run(seed: u64, keeps_trace: bool) -> Report {
    let scenario = Scenario::draw(seed);
    let mut system = System::new(&scenario, keeps_trace);
    system.run();
    let completions = system.completions();
    let System { trace, violation, steps, states, .. } = system;
    let hash = trace.hash();
    let drawn = keeps_trace.then(|| format!("{scenario:#?}")).into_iter();
    Report {
        violation,
        trace_hash: hash,
        steps,
        completions,
        states,
        lines: drawn.chain(trace.into_lines()).collect(),
    }
}

#[cfg(all(test, not(feature = "planted-bugs")))]
mod tests {
    use super::*;

    /// Seeds of this system alone; `tests/seeds.rs` of the swarm runs all.
    const SEEDS: std::ops::Range<u64> = 0..4_000;

    #[test]
    fn groups_of_all_levels_have_their_sums_or_name_who_is_gone() {
        let mut states = [0; STATE_NAMES.len()];
        for seed in SEEDS {
            let report = run(seed, false);
            if let Some(violation) = report.violation {
                panic!("seed {seed}: {violation}\n{}", run(seed, true).lines.join("\n"));
            }
            for (sum, times) in states.iter_mut().zip(report.states) {
                *sum += times;
            }
        }
        for (name, times) in STATE_NAMES.iter().zip(states) {
            assert!(times > 0, "no {name} in {SEEDS:?}");
        }
        println!("{states:?}");
    }
}
