//! The node's path inside the kernel: whether there is one, and if not, why not.

use tributary_kernel_path::{CounterReader, Counters, Handover, LoadError, Program};

use crate::metrics::{Meters, Registry, Table};

/// Where short segments may be taken inside the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelOptions {
    /// Nowhere: the process takes all.
    #[default]
    Off,
    /// At these interfaces, where the kernel allows it; else the process takes all.
    Auto(Vec<String>),
    /// At these interfaces; a node that can't does not start.
    Required(Vec<String>),
}

/// Whether the node has a path inside the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelState {
    /// It was not asked for.
    Off,
    /// It is at these interfaces.
    On(Vec<String>),
    /// It was asked for, and there is none.
    Unavailable(String),
}

/// The program in the kernel, for as long as it is to serve, and what it has in common with the machine.
pub(super) struct KernelPath {
    pub(super) handover: Handover,
    _program: Program,
}

/// The counters of the program as metrics. They are read when they are asked for: no process works while
/// the program does.
pub(super) struct KernelMeters {
    meters: Meters<Counters>,
    reader: Option<CounterReader>,
}

#[rustfmt::skip] // One metric a line.
const COUNTERS: Table<Counters> = &[
    ("tributary_node_kernel_taken_total", "contributions counted inside the kernel", |counters| counters.taken),
    ("tributary_node_kernel_results_total", "segments completed inside the kernel", |counters| counters.completed),
    ("tributary_node_kernel_repeats_total", "contributions seen before inside the kernel, not counted again", |counters| counters.repeats),
    ("tributary_node_kernel_refused_total", "requests refused inside the kernel: capability, source or window", |counters| counters.refused),
    ("tributary_node_kernel_passed_total", "requests to groups of the kernel path that it left to the process", |counters| counters.passed),
    ("tributary_node_kernel_damaged_total", "requests dropped inside the kernel for their checksum", |counters| counters.damaged),
];

impl KernelMeters {
    /// Registers every metric; all stay zero without a program.
    pub(super) fn new(registry: &Registry, kernel: Option<&KernelPath>) -> Self {
        let reader = kernel.map(|kernel| kernel.handover.counter_reader());
        Self { meters: Meters::new(registry, COUNTERS, &[]), reader }
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
    match attached(interfaces) {
        Ok(path) => Ok((Some(path), KernelState::On(interfaces.clone()))),
        Err(error) if is_required => Err(error),
        Err(error) => {
            tracing::warn!("the process takes all segments: {error}");
            Ok((None, KernelState::Unavailable(error.to_string())))
        }
    }
}

fn attached(interfaces: &[String]) -> Result<KernelPath, LoadError> {
    let (mut program, tables) = Program::load()?;
    for interface in interfaces {
        program.attach(interface)?;
    }
    Ok(KernelPath { handover: Handover::new(tables), _program: program })
}
