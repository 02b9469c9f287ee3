//! Reduces a failing scenario, and reports what happened in it.

use super::scenario::Scenario;
use super::trace::Line;
use super::verdict::{Finding, Violation};
use super::{Report, run_groups, run_hosts, run_scenario};

/// Most runs that are spent on reducing one scenario.
const RUNS_MAX: u32 = 3_000;

/// Most lines of a trace that are reported: the last ones.
const LINES_MAX: usize = 120;

/// A failing seed, reduced.
#[derive(Clone, Debug)]
pub struct Story {
    /// The seed.
    pub seed: u64,
    /// The violation.
    pub violation: Violation,
    /// The reduced scenario, and then what happened, one line each.
    pub lines: Vec<String>,
}

/// Runs a seed again. If it fails, reduces the scenario and reports what happened.
#[must_use]
pub fn explain(seed: u64) -> Option<Story> {
    let mut scenario = Scenario::draw(seed);
    let Some(violation) = run_scenario(&scenario, false).outcome.violation else {
        let (ranks, in_ranks) = run_hosts(seed, true);
        let (groups, in_groups) = run_groups(seed, true);
        let of_ranks = in_ranks.map(|violation| (violation, ranks.lines));
        let of_groups = in_groups.map(|violation| (violation, groups.lines));
        let (violation, mut lines) = of_ranks.or(of_groups)?;
        lines.drain(..lines.len().saturating_sub(LINES_MAX));
        return Some(Story { seed, violation, lines });
    };
    shrink(&mut scenario, &violation);
    let Report { finding, lines, .. } = run_scenario(&scenario, true);
    let finding = finding.expect("the reduced scenario still fails, and runs repeat exactly");
    let mut told = describe(&scenario);
    told.extend(tell(&finding, &lines));
    Some(Story { seed, violation: finding.violation, lines: told })
}

/// Removes whatever the violation does not need.
fn shrink(scenario: &mut Scenario, violation: &Violation) {
    let mut budget = RUNS_MAX;
    loop {
        let before = size(scenario);
        for step in [drop_faults, drop_jobs, drop_groups, drop_operations, drop_members] {
            step(scenario, violation, &mut budget);
        }
        if size(scenario) == before || budget == 0 {
            return;
        }
    }
}

fn size(scenario: &Scenario) -> usize {
    let groups = scenario.jobs.iter().flat_map(|job| &job.groups);
    let operations: usize = groups.clone().map(|group| group.script.len()).sum();
    let members: usize = groups.clone().map(|group| group.hosts.len()).sum();
    scenario.faults.len() + scenario.jobs.len() + groups.count() + operations + members
}

/// Keeps a smaller scenario if it fails in the same way.
fn try_out(
    scenario: &mut Scenario,
    smaller: Scenario,
    violation: &Violation,
    budget: &mut u32,
) -> bool {
    if *budget == 0 {
        return false;
    }
    *budget -= 1;
    let found = run_scenario(&smaller, false).outcome.violation;
    let fails = found.is_some_and(|found| found.is_like(violation));
    if fails {
        *scenario = smaller;
    }
    fails
}

fn drop_faults(scenario: &mut Scenario, violation: &Violation, budget: &mut u32) {
    for index in (0..scenario.faults.len()).rev() {
        let mut smaller = scenario.clone();
        smaller.faults.remove(index);
        try_out(scenario, smaller, violation, budget);
    }
}

fn drop_jobs(scenario: &mut Scenario, violation: &Violation, budget: &mut u32) {
    for index in (0..scenario.jobs.len()).rev() {
        let mut smaller = scenario.clone();
        smaller.jobs.remove(index);
        try_out(scenario, smaller, violation, budget);
    }
}

fn drop_groups(scenario: &mut Scenario, violation: &Violation, budget: &mut u32) {
    for job in 0..scenario.jobs.len() {
        for index in (0..scenario.jobs[job].groups.len()).rev() {
            let mut smaller = scenario.clone();
            smaller.jobs[job].groups.remove(index);
            try_out(scenario, smaller, violation, budget);
        }
    }
}

fn drop_operations(scenario: &mut Scenario, violation: &Violation, budget: &mut u32) {
    for job in 0..scenario.jobs.len() {
        for group in 0..scenario.jobs[job].groups.len() {
            let mut index = scenario.jobs[job].groups[group].script.len();
            while index > 0 {
                index -= 1;
                let mut smaller = scenario.clone();
                smaller.jobs[job].groups[group].script.remove(index);
                if smaller.jobs[job].groups[group].script.is_empty() {
                    break;
                }
                try_out(scenario, smaller, violation, budget);
            }
        }
    }
}

fn drop_members(scenario: &mut Scenario, violation: &Violation, budget: &mut u32) {
    for job in 0..scenario.jobs.len() {
        for group in 0..scenario.jobs[job].groups.len() {
            while scenario.jobs[job].groups[group].hosts.len() > 1 {
                let mut smaller = scenario.clone();
                smaller.jobs[job].groups[group].hosts.pop();
                if !smaller.jobs[job].groups[group].names_only_members()
                    || !try_out(scenario, smaller, violation, budget)
                {
                    break;
                }
            }
        }
    }
}

/// A scenario in words.
fn describe(scenario: &Scenario) -> Vec<String> {
    let mut lines = vec![format!(
        "{} hosts, {} aggregation nodes, {:?}",
        scenario.hosts,
        scenario.nodes.len(),
        scenario.network
    )];
    for (index, node) in scenario.nodes.iter().enumerate() {
        lines.push(format!("node {index}: {node:?}"));
    }
    for (index, job) in scenario.jobs.iter().enumerate() {
        lines.push(format!("job {index} from {} ns on hosts {:?}", job.starts_at, job.hosts));
        lines.extend(job.groups.iter().map(|group| format!("  {group:?}")));
    }
    lines.extend(
        scenario.faults.iter().map(|fault| format!("at {} ns: {:?}", fault.at, fault.kind)),
    );
    lines
}

/// What happened to the violation's group, and what concerned all groups.
fn tell(finding: &Finding, lines: &[Line]) -> Vec<String> {
    let concerns = |line: &&Line| {
        line.group.is_none() || finding.group.is_none() || line.group == finding.group
    };
    let told: Vec<&Line> = lines.iter().filter(concerns).collect();
    let skipped = told.len().saturating_sub(LINES_MAX);
    let mut words = Vec::new();
    if skipped > 0 {
        words.push(format!("... {skipped} earlier lines ..."));
    }
    words.extend(told[skipped..].iter().map(|line| {
        let group = line.group.map_or_else(String::new, |key| format!("{key}: "));
        format!("{:>12} ns  {group}{}", line.at_ns, line.text)
    }));
    words.push(format!("{:>12} ns  {}", finding.at_ns, finding.violation));
    words
}
