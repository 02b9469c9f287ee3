//! The aggregator's path inside the kernel: whether there is one, and if not, why not.

use tributary_kernel_path::{CounterReader, Handover, LoadError, Program};
use tributary_manager::TEXT_MAX_BYTES;
use tributary_wire::control::{KernelCounts, KernelState};

use crate::metrics::{Meters, Registry, Table};

/// Where short segments may be taken inside the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelOptions {
    /// Nowhere: the process takes all.
    #[default]
    Off,
    /// At these interfaces, where the kernel allows it; else the process takes all.
    Auto(Vec<String>),
    /// At these interfaces; an aggregator that can't does not start.
    Required(Vec<String>),
}

/// The program in the kernel, for as long as it is to serve, and what it has in common with the machine.
pub(super) struct KernelPath {
    pub(super) handover: Handover,
    _program: Program,
}

impl KernelPath {
    /// Reads what the program counts from wherever it is: no process works while the program does.
    pub(super) fn counts(&self) -> CountsReader {
        CountsReader(self.handover.counter_reader())
    }
}

/// Reads what the program counts.
#[derive(Clone)]
pub(super) struct CountsReader(CounterReader);

impl CountsReader {
    pub(super) fn read(&self) -> KernelCounts {
        let counters = self.0.read();
        KernelCounts {
            groups: self.0.groups(),
            taken: counters.taken,
            results: counters.completed,
            gathered: counters.gathered,
            repeats: counters.repeats,
            refused: counters.refused,
            damaged: counters.damaged,
            passed: counters.passed,
        }
    }
}

/// The program's counts as metrics. They are read when they are asked for.
pub(super) struct KernelMeters {
    meters: Meters<KernelCounts>,
    reader: Option<CountsReader>,
}

#[rustfmt::skip] // One metric a line.
const COUNTERS: Table<KernelCounts> = &[
    ("tributary_node_kernel_taken_total", "contributions counted inside the kernel", |counts| counts.taken),
    ("tributary_node_kernel_results_total", "segments completed inside the kernel", |counts| counts.results),
    ("tributary_node_kernel_gathered_total", "segments gathered inside the kernel and folded by the process", |counts| counts.gathered),
    ("tributary_node_kernel_repeats_total", "contributions seen before inside the kernel, not counted again", |counts| counts.repeats),
    ("tributary_node_kernel_refused_total", "requests refused inside the kernel: capability, source or window", |counts| counts.refused),
    ("tributary_node_kernel_passed_total", "requests to groups of the kernel path that it left to the process", |counts| counts.passed),
    ("tributary_node_kernel_damaged_total", "requests dropped inside the kernel for their checksum", |counts| counts.damaged),
];

#[rustfmt::skip] // One metric a line.
const GAUGES: Table<KernelCounts> = &[
    ("tributary_node_kernel_groups", "groups served inside the kernel", |counts| counts.groups),
];

impl KernelMeters {
    /// Registers every metric; all stay zero without a program.
    pub(super) fn new(registry: &Registry, reader: Option<CountsReader>) -> Self {
        Self { meters: Meters::new(registry, COUNTERS, GAUGES), reader }
    }

    /// Publishes the counts now.
    pub(super) fn publish(&self) {
        if let Some(reader) = &self.reader {
            self.meters.publish(&reader.read());
        }
    }
}

/// Loads the program and attaches it, if that is asked for.
///
/// # Errors
/// If it is required and can't be had.
pub(super) fn open(
    options: &KernelOptions,
) -> Result<(Option<KernelPath>, KernelState), LoadError> {
    let (interfaces, is_required) = match options {
        KernelOptions::Off => return Ok((None, KernelState::Off)),
        KernelOptions::Auto(interfaces) => (interfaces, false),
        KernelOptions::Required(interfaces) => (interfaces, true),
    };
    match attach_kernel_path(interfaces) {
        Ok(path) => Ok((Some(path), KernelState::At(interfaces.clone()))),
        Err(error) if is_required => Err(error),
        Err(error) => {
            tracing::warn!("the process takes all segments: {error}");
            Ok((None, KernelState::Unavailable(shorten(error.to_string()))))
        }
    }
}

fn attach_kernel_path(interfaces: &[String]) -> Result<KernelPath, LoadError> {
    let (mut program, tables) = Program::load()?;
    for interface in interfaces {
        program.attach(interface)?;
    }
    Ok(KernelPath { handover: Handover::new(tables), _program: program })
}

/// A reason, no longer than a manager takes it. What the kernel says of a program it refuses may be long.
fn shorten(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(TEXT_MAX_BYTES));
    reason
}
