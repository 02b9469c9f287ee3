//! Runs a GOAL program by hosts alone: it has no collectives that a tree could take.

use tributary_sim::engine::Picos;
use tributary_sim::input::Refused;
use tributary_sim::preset::Preset;
use tributary_sim::system::{System, SystemPlan};
use tributary_sim::world::{Graph, NoPayload, Node, RunError, Task};
use tributary_workload::goal::{Goal, Operation, Task as GoalTask};

use crate::run::ReplayError;

/// What came of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalOutcome {
    /// When each rank was done.
    pub ended_us: Vec<f64>,
}

impl GoalOutcome {
    /// When the last rank was done.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.ended_us.iter().copied().fold(0.0, f64::max)
    }
}

/// Runs a program with `per_host` ranks on each host, in blocks. Each rank has one core: the cores and
/// adapters that the file names are not told apart.
///
/// # Errors
/// [`ReplayError`]; [`RunError::Stuck`] within it if an operation waits for what never happens.
pub fn run(
    preset: &Preset,
    plan: &SystemPlan,
    goal: &Goal,
    per_host: u32,
    seed: u64,
) -> Result<GoalOutcome, ReplayError> {
    let ranks = goal.ranks.len() as u32;
    let (needed, has) = (ranks.div_ceil(per_host.max(1)), plan.compute_hosts().len() as u32);
    if needed > has {
        let allowed =
            format!("1 to {has}, the hosts of `{}` without an aggregation node", preset.name);
        return Err(Refused::new("hosts", needed, allowed).into());
    }
    let mut system = System::<NoPayload>::from_plan(preset, plan.clone(), seed, None);
    let hosts = system.compute_hosts().to_vec();
    let processes: Vec<_> = (0..ranks)
        .map(|rank| system.world.add_process(hosts[(rank / per_host.max(1)) as usize]))
        .collect();
    let team = system.world.add_team(&processes);
    for (number, operations) in (0..).zip(&goal.ranks) {
        system.world.run_graph(&team, number, graph(operations), Picos::ZERO);
    }
    system.world.run()?;
    let mut ended_us = vec![0.0; ranks as usize];
    let mut finished = 0;
    for done in system.world.take_ranks_finished() {
        ended_us[(done.rank.0 - team.rank(0).0) as usize] = done.ended_at.as_us();
        finished += 1;
    }
    match ranks as usize - finished {
        0 => Ok(GoalOutcome { ended_us }),
        waiting => Err(RunError::Stuck { waiting, of: ranks as usize }.into()),
    }
}

fn graph(operations: &[Operation]) -> Graph {
    let mut nodes: Vec<Node> = operations
        .iter()
        .map(|operation| {
            let task = match operation.task {
                GoalTask::Calc { ns } => Task::Calculate(Picos(ns * 1000)),
                GoalTask::Send { bytes, to, tag } => Task::Send { to, bytes, tag },
                GoalTask::Receive { from, tag, .. } => Task::Receive { from, tag },
            };
            Node { task, before: Vec::new(), ahead_of: Vec::new() }
        })
        .collect();
    for (place, operation) in (0..).zip(operations) {
        for &earlier in &operation.requires {
            nodes[earlier as usize].before.push(place);
        }
        for &earlier in &operation.irequires {
            nodes[earlier as usize].ahead_of.push(place);
        }
    }
    Graph { nodes }
}
