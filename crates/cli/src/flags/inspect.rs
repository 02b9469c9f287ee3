//! `tributary status`, `tree`, `config` and `completions`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::Shell;

use super::daemons::host_and_port;
use crate::usage::whole_number;

const STATUS_EXAMPLES: &str = "\
Examples:
  tributary status --manager 10.0.0.1:7470 --token-file token
  export TRIBUTARY_MANAGER=10.0.0.1:7470 TRIBUTARY_TOKEN_FILE=token
  tributary status --json";

pub(super) const TREE_EXAMPLES: &str = "\
Examples:
  tributary tree --manager 10.0.0.1:7470 --token-file token
  export TRIBUTARY_MANAGER=10.0.0.1:7470 TRIBUTARY_TOKEN_FILE=token
  tributary tree --json";

const CONFIG_EXAMPLES: &str = "\
Examples:
  tributary config
  TRIBUTARY_HOSTS=2 tributary config --json";

/// Show the manager's nodes, jobs and groups
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct FabricFlags {
    /// The manager to ask
    #[arg(long, value_name = "HOST:PORT", env = "TRIBUTARY_MANAGER", value_parser = host_and_port)]
    pub(crate) manager: String,

    /// File that holds the bearer token; its mode must be 0600
    #[arg(long, value_name = "FILE", env = "TRIBUTARY_TOKEN_FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: PathBuf,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show every knob: its value, where that came from, its unit and what it does
#[derive(Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
pub(crate) struct ConfigFlags {
    /// Write one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

const LISTEN_EXAMPLES: &str = "\
Examples:
  TRIBUTARY_EXTERNAL_RECEIVER=/tmp/grant tributary run -- mpirun -n 4 ./app
  tributary listen /tmp/grant  in another terminal, while the job runs
  tributary listen /tmp/grant --count 10

The job never waits for this process: results from before it joined it misses, and when it reads too \
slowly the job goes on without it.";

/// Read the results of a job's reductions from outside it, one JSON object per segment
#[derive(Debug, Args)]
#[command(after_help = LISTEN_EXAMPLES)]
pub(crate) struct ListenFlags {
    /// What the job wrote to where TRIBUTARY_EXTERNAL_RECEIVER said
    #[arg(value_name = "GRANT", value_hint = ValueHint::FilePath)]
    pub(crate) grant: PathBuf,

    /// Segments to read; without it, all until the job ends
    #[arg(long, value_name = "N", value_parser = whole_number(1..=u64::MAX))]
    pub(crate) count: Option<u64>,
}

/// Write a shell's completion script to standard output
#[derive(Debug, Args)]
pub(crate) struct CompletionsFlags {
    /// The shell to write it for
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}
