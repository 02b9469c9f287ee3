//! `tributary status`, `tree`, `open`, `drain`, `config`, `listen`, `completions` and `manual`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::Shell;
use tributary_algorithms::network::Network;

use super::daemons::host_and_port;
use crate::usage::whole_number;

const STATUS_EXAMPLES: &str = "\
Examples:
  tributary status --manager 10.0.0.1:7470 --token-file token
  export TRIBUTARY_MANAGER=10.0.0.1:7470 TRIBUTARY_TOKEN_FILE=token
  tributary status --json
  tributary status --waiting                  why a job hangs";

pub(super) const TREE_EXAMPLES: &str = "\
Examples:
  tributary tree --manager 10.0.0.1:7470 --token-file token
  export TRIBUTARY_MANAGER=10.0.0.1:7470 TRIBUTARY_TOKEN_FILE=token
  tributary tree --json";

const CONFIG_EXAMPLES: &str = "\
Examples:
  tributary config
  TRIBUTARY_HOSTS=2 tributary config --json
  tributary config --explain allreduce:65536 --hosts 8
  tributary config --explain reduce:8 --hosts 4 --ppn 16 --json";

const OPEN_EXAMPLES: &str = "\
Examples:
  tributary open --manager 127.0.0.1:7470 --token-file token
  ssh -L 7470:127.0.0.1:7470 head   from elsewhere, then the same link works

The link is good once, for two minutes, and the browser that takes it for twelve hours. \
The page shows and changes nothing.";

/// Which manager to ask
#[derive(Debug, Args)]
pub(crate) struct ManagerAddressFlags {
    /// The manager to ask
    #[arg(long, value_name = "HOST:PORT", env = "TRIBUTARY_MANAGER", value_parser = host_and_port)]
    pub(crate) manager: String,

    /// File that holds the bearer token; its mode must be 0600
    #[arg(long, value_name = "FILE", env = "TRIBUTARY_TOKEN_FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: PathBuf,
}

/// Print a link to the manager's page, which shows the fabric in a browser
#[derive(Debug, Args)]
#[command(after_help = OPEN_EXAMPLES)]
pub(crate) struct OpenFlags {
    #[command(flatten)]
    pub(crate) at: ManagerAddressFlags,
}

/// Show the manager's aggregation nodes, jobs and groups
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusFlags {
    #[command(flatten)]
    pub(crate) fabric: FabricFlags,

    /// Show the groups that wait, for how long, and which hosts are late
    #[arg(long)]
    pub(crate) waiting: bool,
}

/// Which manager to ask, and how to show what it says
#[derive(Debug, Args)]
pub(crate) struct FabricFlags {
    #[command(flatten)]
    pub(crate) at: ManagerAddressFlags,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Move groups away from an aggregation node that is about to be stopped
///
/// The aggregation node's groups end, and it gets no new ones. Running jobs go over direct links between their hosts
/// until they have another tree, and see a pause. An aggregation node that registers anew, such as its next version
/// under the same name, gets groups again.
#[derive(Debug, Args)]
#[command(after_help = DRAIN_EXAMPLES)]
pub(crate) struct DrainFlags {
    /// The aggregation node's name, as `tributary status` shows it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) fabric: FabricFlags,
}

const DRAIN_EXAMPLES: &str = "\
Examples:
  tributary drain leaf-1";

/// Show every knob: its value, where the value comes from, its unit and its effect
#[derive(Debug, Args)]
#[command(after_help = CONFIG_EXAMPLES)]
pub(crate) struct ConfigFlags {
    /// Show which path an operation takes with these knobs, and why, instead of the knobs
    #[arg(long, value_name = "COLLECTIVE:BYTES")]
    pub(crate) explain: Option<String>,

    /// Hosts of the communicator to explain
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number(1..=1 << 20), requires = "explain")]
    pub(crate) hosts: u64,

    /// Ranks on each of its hosts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number(1..=1 << 16), requires = "explain")]
    pub(crate) ppn: u64,

    /// Leaf switches of its hosts, each of as many, the first hosts at the first one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number(1..=1 << 16), requires = "explain")]
    pub(crate) leaves: u64,

    /// Its hosts are containers or namespaces of one kernel, without a network between them
    #[arg(long, requires = "explain", conflicts_with = "network")]
    pub(crate) one_kernel: bool,

    /// The kind of network between its hosts; TRIBUTARY_NETWORK names it too
    #[arg(long, value_name = "KIND", requires = "explain", value_parser = network_names())]
    pub(crate) network: Option<String>,

    /// The tree's aggregation nodes take short segments inside the kernel (`tributary node --kernel`)
    #[arg(long, requires = "explain")]
    pub(crate) nodes_in_kernel: bool,

    /// Write one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(tributary completions bash)
  tributary completions zsh > ~/.zfunc/_tributary";

const MANUAL_EXAMPLES: &str = "\
Examples:
  mkdir -p man/man1 && tributary manual man/man1
  man -M man tributary-run";

const LISTEN_EXAMPLES: &str = "\
Examples:
  TRIBUTARY_EXTERNAL_RECEIVER=/tmp/grant \\
      tributary run --hosts 2 -- mpirun -n 4 ./app
  tributary listen /tmp/grant  in another terminal, while the job runs
  tributary listen /tmp/grant --count 10

The job never waits for this process: it misses results from before it joined, and the root drops it \
if it reads too slowly.";

/// Read the results of a job's reductions from outside the job, one JSON object per segment
#[derive(Debug, Args)]
#[command(after_help = LISTEN_EXAMPLES)]
pub(crate) struct ListenFlags {
    /// The file that the job wrote, which TRIBUTARY_EXTERNAL_RECEIVER named
    #[arg(value_name = "GRANT", value_hint = ValueHint::FilePath)]
    pub(crate) grant: PathBuf,

    /// Segments to read; without it, all until the job ends
    #[arg(long, value_name = "N", value_parser = whole_number(1..=u64::MAX))]
    pub(crate) count: Option<u64>,

    /// How long to wait for the job's next tree when its tree is lost; 0 waits for none
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = whole_number(0..=86_400))]
    pub(crate) next_tree_within: u64,
}

/// Write a shell's completion script to standard output
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsFlags {
    /// The shell to write it for
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Write the manual pages, one a command, into a folder
#[derive(Debug, Args)]
#[command(after_help = MANUAL_EXAMPLES)]
pub(crate) struct ManualFlags {
    /// The folder, which has to exist
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
}

/// The kinds of network, by name.
fn network_names() -> clap::builder::PossibleValuesParser {
    Network::NAMED.iter().map(|(name, _)| *name).collect::<Vec<_>>().into()
}
