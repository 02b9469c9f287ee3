//! `tributary status`, `tree`, `config` and `completions`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::Shell;

use super::daemons::host_and_port;

const STATUS_EXAMPLES: &str = "\
Examples:
  tributary status --manager 10.0.0.1:7470 --token-file token
  TRIBUTARY_MANAGER=10.0.0.1:7470 TRIBUTARY_TOKEN_FILE=token tributary status --json";

pub(super) const TREE_EXAMPLES: &str = "\
Examples:
  tributary tree --manager 10.0.0.1:7470 --token-file token
  TRIBUTARY_MANAGER=10.0.0.1:7470 TRIBUTARY_TOKEN_FILE=token tributary tree --json";

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

/// Write a shell's completion script to standard output
#[derive(Debug, Args)]
pub(crate) struct CompletionsFlags {
    /// The shell to write it for
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}
