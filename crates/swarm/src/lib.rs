//! Random systems under random faults, checked for safety and then for liveness.
//!
//! A seed decides a fabric, the aggregation nodes on it, jobs with groups and operations, and the
//! faults and their times. The machines are the product's, unchanged:
//! [`tributary_manager`] grants groups over a `topology` fabric,
//! [`tributary_protocol::node`] reduces, [`tributary_protocol::endpoint`] takes part. Links,
//! conversations, processes and payload memory are modelled here after the daemons, in virtual
//! time. The order is that of TigerBeetle's simulator: faults first, then quiet, then all work must
//! complete.
//!
//! Beside it, each seed runs two more systems (crate [`hosts`]): the ranks of several hosts, from set-up to the end, while some
//! of them die or leave, and hosts in replicated groups.
//!
//! Start at [`run`]. `docs/evidence/swarm.md` lists the checks. Nothing here reads a clock or opens a
//! socket.
#![forbid(unsafe_code)]

mod agenda;
mod builds;
mod checks;
mod clocks;
mod codes;
mod control;
mod datagram_store;
mod datagrams;
mod fault_record;
mod inject;
mod job;
mod jobs;
mod kernel_path;
mod leader;
mod leaders;
mod link;
mod locks;
mod manager_host;
mod member;
mod members;
mod multicast;
mod node_host;
mod nodes;
mod scenario;
mod shrink;
mod sweep;
mod timeouts;
mod trace;
mod verdict;
mod world;

use std::any::Any;
use std::panic::{AssertUnwindSafe, UnwindSafe, catch_unwind};

use scenario::Scenario;
use trace::Line;
use tributary_swarm_hosts::{self as hosts, levels};
use verdict::Finding;
use world::World;

pub use scenario::FAULT_NAMES;
pub use shrink::{Story, explain};
pub use sweep::{Sweep, SweepOptions, sweep};
pub use verdict::Violation;

/// The commit that this was built from; `unknown` outside a checkout. `+` marks uncommitted
/// changes.
pub const COMMIT: &str = env!("TRIBUTARY_COMMIT");

const RANK_STATES: usize = hosts::STATE_NAMES.len();
const STATES: usize = RANK_STATES + levels::STATE_NAMES.len();

/// The states that ranks, and then hosts in groups, may come to, in the order of the counts of an outcome.
pub const STATE_NAMES: [&str; STATES] = {
    let mut names = [""; STATES];
    let mut at = 0;
    while at < STATES {
        names[at] = if at < RANK_STATES {
            hosts::STATE_NAMES[at]
        } else {
            levels::STATE_NAMES[at - RANK_STATES]
        };
        at += 1;
    }
    names
};

/// Outcome of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Hash of every frame, with its time and place, and of every completion.
    pub trace_hash: u64,
    /// Events that were processed.
    pub steps: u64,
    /// Frames that were sent.
    pub frames: u64,
    /// Groups that were granted.
    pub groups: u64,
    /// Operations that completed, counted at every member.
    pub completions: u64,
    /// Of these, by direct links in a lost tree's place.
    pub completions_over_links: u64,
    /// Trees that members went back into, counted at every member.
    pub trees_regained: u64,
    /// Segments that were completed or gathered inside a kernel.
    pub segments_in_kernel: u64,
    /// Groups all of whose aggregators and members are of the newer of two builds.
    pub groups_of_next_build: u64,
    /// Groups that failed at one or more members.
    pub groups_failed: u64,
    /// Faults that hit a target, by kind, in the order of [`FAULT_NAMES`].
    pub faults: [u64; FAULT_NAMES.len()],
    /// Operations that completed in replicated groups, counted at every host.
    pub completions_in_groups: u64,
    /// How often ranks and hosts came to each of the states of [`STATE_NAMES`], in that order.
    pub states: [u64; STATE_NAMES.len()],
    /// The violation, if there was one.
    pub violation: Option<Violation>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    let outcome = run_scenario(&Scenario::draw(seed), false).outcome;
    let (hosts, in_hosts) = run_hosts(seed, false);
    let (groups, in_groups) = run_groups(seed, false);
    let mut states = [0; STATES];
    states[..RANK_STATES].copy_from_slice(&hosts.states);
    states[RANK_STATES..].copy_from_slice(&groups.states);
    let hashes = hosts.trace_hash ^ groups.trace_hash.rotate_left(2);
    Outcome {
        trace_hash: outcome.trace_hash.rotate_left(1) ^ hashes,
        steps: outcome.steps + hosts.steps + groups.steps,
        completions_in_groups: groups.completions,
        states,
        violation: outcome.violation.or(in_hosts).or(in_groups),
        ..outcome
    }
}

fn run_hosts(seed: u64, keeps_trace: bool) -> (hosts::Report, Option<Violation>) {
    let (mut report, panic) = catch(|| hosts::run(seed, keeps_trace));
    let violation = report.violation.take().map(Violation::Ranks);
    (report, violation.or(panic))
}

fn run_groups(seed: u64, keeps_trace: bool) -> (levels::Report, Option<Violation>) {
    let (mut report, panic) = catch(|| levels::run(seed, keeps_trace));
    let violation = report.violation.take().map(Violation::Groups);
    (report, violation.or(panic))
}

/// A report; an empty one and the violation if a machine has panicked: they assert their invariants, in release builds too.
fn catch<R: Default>(run: impl FnOnce() -> R + UnwindSafe) -> (R, Option<Violation>) {
    match catch_unwind(run) {
        Ok(report) => (report, None),
        Err(panic) => {
            let message = message_of(panic.as_ref());
            (R::default(), Some(Violation::Panicked { message }))
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    let text = || panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    owned.or_else(text).unwrap_or_else(|| "no message".to_owned())
}

/// A run with its finding and its trace.
struct Report {
    outcome: Outcome,
    finding: Option<Finding>,
    lines: Vec<Line>,
}

fn run_scenario(scenario: &Scenario, keeps_trace: bool) -> Report {
    let mut world = World::new(scenario, keeps_trace);
    // The machines assert their invariants, in release builds too.
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = ended {
        let message = message_of(panic.as_ref());
        world.report(None, Violation::Panicked { message });
    }
    let failed = |run: &job::Run| {
        run.members.iter().any(|member| world.members[*member as usize].failed.is_some())
    };
    let outcome = Outcome {
        seed: scenario.seed,
        trace_hash: world.trace.hash(),
        steps: world.steps,
        frames: world.frames,
        groups: world.runs.len() as u64,
        completions: world.completions,
        trees_regained: world.trees_regained,
        completions_over_links: world.completions_over_links,
        segments_in_kernel: world.segments_in_kernel,
        groups_of_next_build: world.runs.iter().filter(|run| builds::is_next(&run.grant)).count()
            as u64,
        groups_failed: world.runs.iter().filter(|run| failed(run)).count() as u64,
        faults: world.hits,
        completions_in_groups: 0,
        states: [0; STATES],
        violation: world.finding.as_ref().map(|finding| finding.violation.clone()),
    };
    Report { outcome, finding: world.finding.take(), lines: world.trace.into_lines() }
}
