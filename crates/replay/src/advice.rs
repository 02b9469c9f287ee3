//! Advice for a traced program: would a tree help, and where do aggregators go?
//!
//! The model tells how much shorter each collective becomes in the tree. How long it is without, the trace
//! tells: so the machine on which it was recorded need not be the one that is modelled.

use std::collections::BTreeMap;

use tributary_sim::preset::Preset;
use tributary_sim::system::{Nodes, SystemPlan};
use tributary_workload::trace::{Joint, OperationTimes, Path};

use crate::run::{Between, Class, Outcome, ReplayError, is_in_tree, run};

/// How far the model's hosts may be from those of the trace, either way, for a conclusion.
pub const MODEL_OFF_MAX: f64 = 2.0;

/// Parts of the trace that are looked at by themselves, for its spread.
const PARTS: usize = 8;

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdviceError {
    /// Nothing was recorded on several hosts.
    #[error(
        "the trace has no collective over several hosts; allowed: a trace of a program on several"
    )]
    NothingToGain,
    /// The program ran in a tree already.
    #[error(
        "the trace has {0} operations in a tree; allowed: one recorded with TRIBUTARY_OFFLOAD=off"
    )]
    InTree(usize),
    /// The simulation failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// What a tree would bring.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// How long the recorded part of the program was.
    pub recorded_us: f64,
    /// The share of it that its collectives take once the last rank has come.
    pub collectives_share: f64,
    /// How long collectives are by hosts alone: simulated over measured, all together.
    pub model_over_trace: f64,
    /// Each collective and length.
    pub classes: Vec<ClassAdvice>,
    /// Each way to place aggregators.
    pub placements: Vec<Placement>,
}

impl Advice {
    /// Whether the model's hosts are near enough to those of the trace for a conclusion: within [`MODEL_OFF_MAX`].
    #[must_use]
    pub fn is_conclusive(&self) -> bool {
        (1.0 / MODEL_OFF_MAX..=MODEL_OFF_MAX).contains(&self.model_over_trace)
    }
}

/// A collective and length: measured, and simulated by hosts alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassAdvice {
    /// Which.
    pub class: Class,
    /// How many there were.
    pub operations: u64,
    /// The sum of their shortest times.
    pub measured_us: f64,
    /// The same, simulated.
    pub hosts_us: f64,
}

/// A way to place aggregation nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Where they are.
    pub nodes: Nodes,
    /// Whether the manager or an aggregator refused the tree.
    pub is_refused: bool,
    /// What the program gains.
    pub gain: Range,
}

/// A gain: how often faster the program is, at least 1, because collectives that a tree slows stay with hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// From the measured times of collectives and the simulated share that a tree leaves of them. Where all hosts
    /// share cores it is the gain in the model alone: there a rank is late because others hold its core, with
    /// messages that a tree saves.
    pub likely: f64,
    /// The least of: the gain in the model alone; the one from measured times, for all of the trace, for each eighth
    /// of it, and if the tree's share of each time is wrong by as large a factor as the model's times of hosts are.
    pub low: f64,
    /// The most of them.
    pub high: f64,
}

/// Advises on a trace, for the system of a preset.
///
/// # Errors
/// [`AdviceError`].
pub fn advise(preset: &Preset, joint: &Joint<'_>, seed: u64) -> Result<Advice, AdviceError> {
    let in_tree = joint.operations().filter(|operation| operation.path == Path::Tree).count();
    if in_tree > 0 {
        return Err(AdviceError::InTree(in_tree));
    }
    let workload = joint.workload("trace");
    let go = |plan: &SystemPlan, between: &Between| run(preset, plan, &workload, between, seed);
    let first = SystemPlan::new(preset).map_err(ReplayError::from)?;
    let hosts = go(&first, &Between::Hosts)?;
    let measured = Measured::new(joint);
    let classes = measured.classes(&hosts);
    let simulated_us: f64 = classes.iter().map(|class| class.hosts_us).sum();
    let measured_us: f64 = classes.iter().map(|class| class.measured_us).sum();
    if simulated_us <= 0.0 || measured_us <= 0.0 || workload.host_count() < 2 {
        return Err(AdviceError::NothingToGain);
    }
    let mut placements = Vec::new();
    for left_out in 0.. {
        let plan = match SystemPlan::without_lowest(preset, left_out) {
            Ok(Some(plan)) => plan,
            Ok(None) => break,
            Err(error) => return Err(ReplayError::from(error).into()),
        };
        let nodes = plan.nodes();
        let multicast = preset.aggregation.as_ref().is_some_and(|nodes| !nodes.on_hosts);
        let tree = Between::Tree { multicast, only: None };
        // A communicator whose tree is refused stays with hosts.
        let tree = Some(go(&plan, &tree)?).filter(|tree| tree.trees > 0);
        placements.push(Placement {
            nodes,
            is_refused: tree.is_none(),
            gain: tree.map_or(Range { likely: 1.0, low: 1.0, high: 1.0 }, |tree| {
                let range = measured.gain(joint, &hosts, &tree, simulated_us / measured_us);
                let of_model = gain_of_model(&hosts, &tree);
                let likely = if preset.machine.is_some() { of_model } else { range.likely };
                Range { likely, low: range.low.min(of_model), high: range.high.max(of_model) }
            }),
        });
    }
    let recorded_us = joint.recorded_ns() as f64 / 1e3;
    Ok(Advice {
        recorded_us,
        collectives_share: measured_us / recorded_us.max(f64::MIN_POSITIVE),
        model_over_trace: simulated_us / measured_us,
        classes,
        placements,
    })
}

/// The operations of a trace between hosts.
struct Measured<'a> {
    operations: Vec<&'a OperationTimes>,
}

impl<'a> Measured<'a> {
    fn new(joint: &'a Joint<'_>) -> Self {
        let operations = joint.operations().filter(|operation| operation.path != Path::Host);
        Self { operations: operations.collect() }
    }

    fn classes(&self, hosts: &Outcome) -> Vec<ClassAdvice> {
        let mut classes: BTreeMap<Class, (u64, f64)> = BTreeMap::new();
        for operation in &self.operations {
            let (count, sum_us) = classes.entry(class_of(operation)).or_default();
            *count += 1;
            *sum_us += operation.shortest_ns as f64 / 1e3;
        }
        let advice = |(class, (operations, measured_us)): (Class, (u64, f64))| {
            let hosts_us = hosts.classes.get(&class).map_or(0.0, |times| times.shortest_us);
            ClassAdvice { class, operations, measured_us, hosts_us }
        };
        classes.into_iter().map(advice).collect()
    }

    /// From the measured times. `model_over_trace` says how far the model's hosts are from those of the trace.
    fn gain(
        &self,
        joint: &Joint<'_>,
        hosts: &Outcome,
        tree: &Outcome,
        model_over_trace: f64,
    ) -> Range {
        let left = |class: Class| share_left(class, hosts, tree, 1.0);
        let whole_us = joint.recorded_ns() as f64 / 1e3;
        let likely = gain(&self.operations, whole_us, &left);
        let mut all = Vec::new();
        for wrong_by in [model_over_trace, 1.0 / model_over_trace] {
            let left = |class: Class| share_left(class, hosts, tree, wrong_by);
            all.push(gain(&self.operations, whole_us, &left));
        }
        let part_ns = joint.recorded_ns() / PARTS as u64 + 1;
        for part in 0..PARTS as u64 {
            let times = part * part_ns..(part + 1) * part_ns;
            let is_here = |operation: &&&OperationTimes| times.contains(&operation.began_ns);
            let own: Vec<_> = self.operations.iter().filter(is_here).copied().collect();
            all.push(gain(&own, part_ns as f64 / 1e3, &left));
        }
        Range {
            likely,
            low: all.iter().copied().fold(likely, f64::min),
            high: all.iter().copied().fold(likely, f64::max),
        }
    }
}

/// How often faster the whole program is in the model, at least 1: a slower tree is not taken.
fn gain_of_model(hosts: &Outcome, tree: &Outcome) -> f64 {
    (hosts.total_us / tree.total_us.max(f64::MIN_POSITIVE)).max(1.0)
}

/// How often faster a program of `whole_us` is, if of each of these operations so much is left.
fn gain(operations: &[&OperationTimes], whole_us: f64, left: &dyn Fn(Class) -> f64) -> f64 {
    let saved_us = |operation: &&OperationTimes| {
        operation.shortest_ns as f64 / 1e3 * (1.0 - left(class_of(operation)))
    };
    let saved_us: f64 = operations.iter().map(saved_us).sum();
    whole_us / (whole_us - saved_us).max(whole_us * 1e-3)
}

/// The share of a collective's time that a tree leaves, if the simulated one is wrong by a factor: at most 1,
/// because a slower collective stays with hosts.
fn share_left(class: Class, hosts: &Outcome, tree: &Outcome, wrong_by: f64) -> f64 {
    match (hosts.classes.get(&class), tree.classes.get(&class)) {
        (Some(hosts), Some(tree)) if is_in_tree(class.kind) && hosts.shortest_us > 0.0 => {
            (tree.shortest_us / hosts.shortest_us * wrong_by).min(1.0)
        }
        _ => 1.0,
    }
}

fn class_of(operation: &OperationTimes) -> Class {
    Class { kind: operation.kind, bytes: operation.bytes }
}
