//! Many seeds, on all cores.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::{FAULT_NAMES, Outcome, STATE_NAMES, run};

/// Options of a sweep.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// The seeds.
    pub seeds: Range<u64>,
    /// Stop after so many failing seeds. Seeds that are under way then still count.
    pub failures_max: u64,
}

/// Outcome of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Seeds that were run.
    pub seeds: u64,
    /// Events that were processed in them.
    pub steps: u64,
    /// Frames that were sent.
    pub frames: u64,
    /// Groups that were granted.
    pub groups: u64,
    /// Faults that hit a target, by kind, in the order of [`FAULT_NAMES`].
    pub faults: [u64; FAULT_NAMES.len()],
    /// Operations that completed in replicated groups, counted at every host.
    pub completions_in_groups: u64,
    /// How often ranks and hosts came to each of the states of [`STATE_NAMES`], in that order.
    pub states: [u64; STATE_NAMES.len()],
    /// Groups that failed at one or more members.
    pub groups_failed: u64,
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
    /// Sum of all trace hashes, so it does not depend on the order in which cores ran the seeds.
    pub trace_hash: u64,
    /// Seeds that failed, ascending.
    pub failures: Vec<Outcome>,
}

impl Sweep {
    fn of(outcome: Outcome) -> Self {
        Self {
            seeds: 1,
            steps: outcome.steps,
            frames: outcome.frames,
            groups: outcome.groups,
            faults: outcome.faults,
            completions_in_groups: outcome.completions_in_groups,
            states: outcome.states,
            groups_failed: outcome.groups_failed,
            completions: outcome.completions,
            completions_over_links: outcome.completions_over_links,
            trees_regained: outcome.trees_regained,
            segments_in_kernel: outcome.segments_in_kernel,
            groups_of_next_build: outcome.groups_of_next_build,
            trace_hash: outcome.trace_hash,
            failures: if outcome.violation.is_some() { vec![outcome] } else { Vec::new() },
        }
    }

    fn with(mut self, mut other: Self) -> Self {
        self.failures.append(&mut other.failures);
        Self {
            seeds: self.seeds + other.seeds,
            steps: self.steps + other.steps,
            frames: self.frames + other.frames,
            groups: self.groups + other.groups,
            faults: std::array::from_fn(|kind| self.faults[kind] + other.faults[kind]),
            completions_in_groups: self.completions_in_groups + other.completions_in_groups,
            states: std::array::from_fn(|state| self.states[state] + other.states[state]),
            groups_failed: self.groups_failed + other.groups_failed,
            completions: self.completions + other.completions,
            completions_over_links: self.completions_over_links + other.completions_over_links,
            trees_regained: self.trees_regained + other.trees_regained,
            segments_in_kernel: self.segments_in_kernel + other.segments_in_kernel,
            groups_of_next_build: self.groups_of_next_build + other.groups_of_next_build,
            trace_hash: self.trace_hash.wrapping_add(other.trace_hash),
            failures: self.failures,
        }
    }
}

/// Runs a range of seeds on all cores. Calls `progress` on any of them with the numbers of seeds
/// that are done and that have failed.
pub fn sweep(options: &SweepOptions, progress: impl Fn(u64, u64) + Sync) -> Sweep {
    let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_enough = AtomicBool::new(false);
    let mut sum = options
        .seeds
        .clone()
        .into_par_iter()
        .map(|seed| {
            // Ordering: only counts are shared; no other memory depends on them.
            if is_enough.load(Ordering::Relaxed) {
                return Sweep::default();
            }
            let outcome = run(seed);
            let failures = if outcome.violation.is_some() {
                failed.fetch_add(1, Ordering::Relaxed) + 1
            } else {
                failed.load(Ordering::Relaxed)
            };
            if failures >= options.failures_max {
                is_enough.store(true, Ordering::Relaxed);
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, failures);
            Sweep::of(outcome)
        })
        .reduce(Sweep::default, Sweep::with);
    sum.failures.sort_by_key(|outcome| outcome.seed);
    sum
}
