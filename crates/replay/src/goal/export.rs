//! Writes a workload as a GOAL program: the hosts' algorithms, message by message.

use std::collections::HashMap;

use tributary_algorithms::{Action, CollectiveKind, Landing, Order, Schedule, Shape, Unsupported};
use tributary_sim::engine::Random;
use tributary_sim::measure::choose_algorithm;
use tributary_sim::preset::Preset;
use tributary_workload::goal::{CALC_MAX_NS, Goal, Operation, Task};
use tributary_workload::{Call, Workload};

/// Most operations of a program, all ranks together.
const OPERATIONS_MAX: usize = 20_000_000;

/// Why a workload was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// It would be too long.
    #[error(
        "the program has more than {OPERATIONS_MAX} operations; allowed: fewer ranks or iterations"
    )]
    TooLong,
    /// The hosts' algorithm has no such collective.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// The program of a workload in which every rank sends its own messages: GOAL has no hosts. Algorithms and the
/// time of a reduction are the preset's.
///
/// # Errors
/// [`ExportError`].
pub fn export(preset: &Preset, workload: &Workload, seed: u64) -> Result<Goal, ExportError> {
    let numbers: Vec<HashMap<u32, (usize, u32)>> = workload
        .communicators
        .iter()
        .map(|communicator| {
            let parts = communicator.parts.iter().enumerate();
            parts
                .flat_map(|(part, ranks)| {
                    ranks.iter().zip(0..).map(move |(&rank, number)| (rank, (part, number)))
                })
                .collect()
        })
        .collect();
    let mut goal = Goal::default();
    let mut total = 0;
    for rank in 0..workload.ranks() {
        let mut writer = Writer::default();
        let mut random = Random::new(seed.wrapping_add(rank.into()));
        for (compute, call) in workload.steps(rank) {
            writer.calc(compute.sample(&mut || random.unit()) * 1e3);
            let (part, number) = numbers[call.communicator][&rank];
            let ranks = &workload.communicators[call.communicator].parts[part];
            writer.collective(preset, call, ranks, number)?;
            if total + writer.operations.len() > OPERATIONS_MAX {
                return Err(ExportError::TooLong);
            }
        }
        total += writer.operations.len();
        goal.ranks.push(writer.operations);
    }
    Ok(goal)
}

/// The operations of one rank.
#[derive(Default)]
struct Writer {
    operations: Vec<Operation>,
    /// What the next operation waits for.
    last: Vec<u32>,
}

impl Writer {
    fn add(&mut self, task: Task, requires: &[u32]) -> u32 {
        self.operations.push(Operation::new(task).after(requires));
        self.operations.len() as u32 - 1
    }

    /// An operation after all before it.
    fn then(&mut self, task: Task) {
        let last = core::mem::take(&mut self.last);
        self.last = vec![self.add(task, &last)];
    }

    fn calc(&mut self, ns: f64) {
        let ns = (ns.round() as u64).min(CALC_MAX_NS);
        if ns > 0 {
            self.then(Task::Calc { ns });
        }
    }

    fn collective(
        &mut self,
        preset: &Preset,
        call: Call,
        ranks: &[u32],
        number: u32,
    ) -> Result<(), Unsupported> {
        let bytes = match call.kind {
            CollectiveKind::Allgather => call.bytes * ranks.len() as u64,
            _ => call.bytes,
        };
        let algorithm = choose_algorithm(preset, call.kind, bytes as usize, ranks.len() as u32);
        let elements = bytes.div_ceil(4).max(1);
        let shape = Shape { ranks: ranks.len() as u32, elements, order: Order::Any };
        let tag = call.communicator as u32;
        let mut round = None;
        let mut at_begin = Vec::new();
        for step in Schedule::new(algorithm, call.kind.rooted_at(call.root), shape, number)? {
            if round != Some(step.round) {
                round = Some(step.round);
                at_begin.clone_from(&self.last);
            }
            // LogGOPSim counts bytes beyond the first, so no message is empty.
            let len = |elements: u64| (elements * 4).max(1) as u32;
            let fold_ns =
                |elements: u64| preset.software.reduce_byte.value() * (elements * 4) as f64;
            match step.action {
                Action::Send { to, span } => {
                    let to = ranks[to as usize];
                    self.then(Task::Send { bytes: len(span.elements), to, tag });
                }
                Action::Receive { from, span, landing, .. } => {
                    let from = Some(ranks[from as usize]);
                    let task = Task::Receive { bytes: len(span.elements), from, tag: Some(tag) };
                    let place = self.add(task, &at_begin);
                    self.last.push(place);
                    if landing != Landing::Store {
                        self.calc(fold_ns(span.elements));
                    }
                }
                Action::Fold { span } => self.calc(fold_ns(span.elements)),
            }
        }
        Ok(())
    }
}
