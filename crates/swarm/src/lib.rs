//! Random systems under random faults, checked for safety first and for liveness after.
//!
//! A seed stands for a fabric, aggregation nodes on it, jobs with groups and operations, and what
//! goes wrong when. The machines are the product's, unchanged: [`tributary_protocol::manager`]
//! grants groups over a `topology` fabric, [`tributary_protocol::node`] reduces,
//! [`tributary_protocol::endpoint`] takes part. What stands between them (links, conversations,
//! processes, payload memory) is modelled here after the daemons, in virtual time. TigerBeetle's
//! simulator is the example: faults first, then quiet, then everything must come to a good end.
//!
//! Start at [`run`]. What is checked: `docs/swarm.md`. Nothing here reads a clock or opens a socket.
#![forbid(unsafe_code)]

mod agenda;
mod checks;
mod control;
mod datagrams;
mod fault_record;
mod inject;
mod jobs;
mod link;
mod locks;
mod members;
mod multicast;
mod nodes;
mod scenario;
mod shrink;
mod sweep;
mod trace;
mod verdict;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use scenario::Scenario;
use trace::Line;
use verdict::Finding;
use world::World;

pub use scenario::FAULT_NAMES;
pub use shrink::{Story, explain};
pub use sweep::{Sweep, SweepOptions, sweep};
pub use verdict::Violation;

/// The commit that this was built from; `unknown` outside a checkout. `+` marks changed files.
pub const COMMIT: &str = env!("TRIBUTARY_COMMIT");

/// What one run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Every frame, when and where it was sent, and every completion, in one number.
    pub trace_hash: u64,
    /// Things that happened.
    pub steps: u64,
    /// Frames that were sent.
    pub frames: u64,
    /// Groups that were granted.
    pub groups: u64,
    /// Operations that completed, counted at every member.
    pub completions: u64,
    /// Groups that failed at one member at least.
    pub groups_failed: u64,
    /// Faults that found something to hit, by kind, in the order of [`FAULT_NAMES`].
    pub faults: [u64; FAULT_NAMES.len()],
    /// What must never happen, if it did.
    pub violation: Option<Violation>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    run_scenario(&Scenario::draw(seed), false).outcome
}

/// A run with all that is known of it.
struct Report {
    outcome: Outcome,
    finding: Option<Finding>,
    lines: Vec<Line>,
}

fn run_scenario(scenario: &Scenario, keeps_trace: bool) -> Report {
    let mut world = World::new(scenario, keeps_trace);
    // The machines assert their invariants, in release as well.
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = ended {
        let message = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "without a word".to_owned());
        world.report(None, Violation::Panicked { message });
    }
    let failed = |run: &jobs::Run| {
        run.members.iter().any(|member| world.members[*member as usize].failed.is_some())
    };
    let outcome = Outcome {
        seed: scenario.seed,
        trace_hash: world.trace.hash(),
        steps: world.steps,
        frames: world.frames,
        groups: world.runs.len() as u64,
        completions: world.members.iter().map(|member| member.completed as u64).sum(),
        groups_failed: world.runs.iter().filter(|run| failed(run)).count() as u64,
        faults: world.hits,
        violation: world.finding.as_ref().map(|finding| finding.violation.clone()),
    };
    Report { outcome, finding: world.finding.take(), lines: world.trace.into_lines() }
}
