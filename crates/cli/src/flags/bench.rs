//! `tributary bench`, and the hidden `tributary bench-rank` that its children run.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tributary_client::CollectiveKind;

use crate::usage::whole_number;

const EXAMPLES: &str = "\
Examples:
  tributary bench allreduce
  tributary bench allreduce --procs 4 --hosts 2 --sizes 8,1K,64K,1M
  tributary bench allreduce --algo host,tree --sizes 4:64K
  tributary bench barrier --procs 8 --hosts 4 --json
  tributary bench allreduce --procs 4 --hosts 4 --overlap

Latency in the manner of the OSU benchmarks: a barrier before each operation, every rank times its \
own part. After avg_us come quartiles over operations, of the mean over ranks, and quartiles over ranks, \
of the mean over operations (in JSON op_min_us ... and rank_min_us ...). If a rank or an aggregation node dies, the \
benchmark ends with exit code 1 and says what happened to every rank.";

/// Time collectives between processes that it starts, without any MPI
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchFlags {
    /// The collective to time
    #[arg(value_enum, value_name = "COLLECTIVE")]
    pub(crate) collective: CollectiveFlag,

    /// Processes to start
    #[arg(long, value_name = "N", default_value = "4", value_parser = whole_number(1..=256))]
    pub(crate) procs: u64,

    /// Let this machine act as N hosts; ranks are dealt out in blocks
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number(1..=64))]
    pub(crate) hosts: u64,

    /// Sizes in bytes: a list (8,1K,1M) or every power of two of a range (4:1M); by default
    /// 8,1K,64K,1M
    #[arg(long, value_name = "SIZES")]
    pub(crate) sizes: Option<String>,

    /// Type of an element
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub(crate) dtype: String,

    /// Operator of allreduce and reduce
    #[arg(long, value_name = "OPERATOR")]
    pub(crate) op: Option<String>,

    /// Paths to compare: auto reduces inside each host and then between hosts, host makes all
    /// processes one host, tree makes every process an endpoint of the tree, direct connects every
    /// process to the others by direct links
    #[arg(long, value_enum, value_name = "PATHS", default_value = "auto", value_delimiter = ',')]
    pub(crate) algo: Vec<PathFlag>,

    /// Operations timed per size; by default 1000 up to 8 KiB, fewer above
    #[arg(long, value_name = "N", value_parser = whole_number(1..=10_000_000))]
    pub(crate) iters: Option<u64>,

    /// Operations before the timed ones; by default a tenth of them
    #[arg(long, value_name = "N", value_parser = whole_number(0..=10_000_000))]
    pub(crate) warmup: Option<u64>,

    /// How processes reach their aggregation node
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value = "auto")]
    pub(crate) transport: super::TransportFlag,

    /// Start each operation, compute as long as it takes alone, and wait: measures how much of it the
    /// computation hides, in the manner of osu_iallreduce
    #[arg(long)]
    pub(crate) overlap: bool,

    /// Do not check results
    #[arg(long)]
    pub(crate) no_verify: bool,

    /// Write one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A collective that can be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum CollectiveFlag {
    /// Every process gets the reduction of all vectors
    Allreduce,
    /// Rank 0 gets the reduction of all vectors
    Reduce,
    /// No data: every process waits for all others
    Barrier,
    /// Every process gets rank 0's vector
    Bcast,
}

/// A path to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathFlag {
    /// Shared memory inside each host, the tree between hosts
    Auto,
    /// Shared memory of one host
    Host,
    /// Every process is an endpoint of the tree
    Tree,
    /// Every process is a host; host algorithms run over direct links between them
    Direct,
}

impl CollectiveFlag {
    pub(crate) fn kind(self) -> CollectiveKind {
        match self {
            Self::Allreduce => CollectiveKind::Allreduce,
            Self::Reduce => CollectiveKind::Reduce,
            Self::Barrier => CollectiveKind::Barrier,
            Self::Bcast => CollectiveKind::Broadcast,
        }
    }

    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        self.kind().name()
    }
}

impl PathFlag {
    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Host => "host",
            Self::Tree => "tree",
            Self::Direct => "direct",
        }
    }
}

/// One process of a benchmark; its standard input is the socket to the parent.
#[derive(Debug, Args)]
pub(crate) struct BenchRankFlags {}
