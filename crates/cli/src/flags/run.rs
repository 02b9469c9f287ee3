//! `tributary run`.

use std::ffi::OsString;

use clap::{Args, ValueEnum, ValueHint};

use crate::usage::whole_number;

const EXAMPLES: &str = "\
Examples:
  tributary run -- mpirun -n 4 ./app
  tributary run --hosts 2 -- mpirun -n 4 ./app
  tributary run --report report.json -- mpiexec -n 8 python3 train.py
  tributary run --report plain.json --offload off -- mpirun -n 4 ./app
  tributary run -- ./run-all-tests.sh
  tributary run --aggregator -- mpirun --hostfile hosts ./app
  export TRIBUTARY_MANAGER=10.0.0.1:7470 TRIBUTARY_TOKEN_FILE=token
  tributary run -- mpirun ./app

The exit code is the command's own, or 128 plus the signal's number if a signal ended it.";

/// Run a command whose MPI collectives go through aggregation trees
///
/// Starts a manager and a two-level tree on this machine for as long as the command runs, unless
/// TRIBUTARY_MANAGER names a manager. The program stays unchanged: a library is preloaded. At the end,
/// a report on standard error says how many operations took which path, and why.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunFlags {
    /// Let this machine act as N hosts, so that the tree is used between them
    #[arg(long, value_name = "N", value_parser = whole_number(1..=64))]
    pub(crate) hosts: Option<u64>,

    /// Start a manager and an aggregator on this host, for the ranks of all hosts, for as long as the command runs
    ///
    /// They listen at the address of TRIBUTARY_INTERFACE, else at this host's first, at ports of TRIBUTARY_PORTS, with a token made
    /// for this run. What goes through the tree is selected as with any manager.
    #[arg(long, conflicts_with = "hosts")]
    pub(crate) aggregator: bool,

    /// Also write the report as JSON to PATH, with times, for `tributary report`; - writes it as text to
    /// standard error only
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<OsString>,

    /// Whether collectives are offloaded; if not, the report is a baseline for `tributary report`
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub(crate) offload: Option<SwitchFlag>,

    /// How processes reach their aggregation node
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value = "auto")]
    pub(crate) transport: TransportFlag,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SwitchFlag {
    /// Wherever it is possible
    On,
    /// Never: the underlying MPI gets every call
    Off,
}

impl SwitchFlag {
    /// As the client's knob spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// How endpoints reach aggregation nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportFlag {
    /// Shared memory where both sides are on one machine, else TCP
    Auto,
    /// Shared memory
    Shm,
    /// TCP
    Tcp,
}

impl TransportFlag {
    /// As the client's knob spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}
