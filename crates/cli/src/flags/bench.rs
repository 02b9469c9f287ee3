//! `tributary bench`, and the hidden `tributary bench-rank` that its children run.

use std::ffi::OsString;

use clap::{Args, ValueEnum, ValueHint};
use tributary_bench::Collective;

use crate::usage::whole_number;

const EXAMPLES: &str = "\
Examples:
  tributary bench allreduce
  tributary bench allreduce --procs 4 --hosts 2 --sizes 8,1K,64K,1M
  tributary bench allreduce --algo host,tree --sizes 4:64K
  tributary bench barrier --procs 8 --hosts 4 --json
  tributary bench allreduce --procs 4 --hosts 4 --overlap
  tributary bench --peer -- mpirun --hostfile hosts -n 8
  tributary bench --collectives allreduce,scan --report r.json -- srun -n 64

With COLLECTIVE: latency in the manner of the OSU benchmarks: a barrier before each operation, every rank times its \
own part. After avg_us come quartiles over operations, of the mean over ranks, and quartiles over ranks, \
of the mean over operations (in JSON op_min_us ... and rank_min_us ...). If a rank or an aggregation node dies, the \
benchmark ends with exit code 1 and says what happened to every rank.

With LAUNCHER: the launcher starts a measuring program, which mpicc compiles from a source that this program holds, \
with the preload library and for --peer also without it. The ranks meet in a barrier, which is not timed; latency is \
the time of the slowest rank of each call, or of each block of calls where a call takes less than 20 us. Sizes are \
those of the OSU benchmarks: what a rank contributes, for reduce_scatter to all ranks together. Bandwidths are those \
of nccl-tests, but in 10^6 bytes a second: alg is S / mean, where S is the size, for allgather times n ranks; bus is alg \
times 2(n-1)/n for allreduce, (n-1)/n for allgather and reduce_scatter, and 1 for reduce and bcast. Scan has no bus \
bandwidth, barrier none at all. Every rank checks every result, of a block the last one; the exit code is 1 if an \
element is wrong.";

/// Time collectives: between processes of this machine without any MPI, or on a cluster through its MPI
///
/// With COLLECTIVE, starts processes on this machine itself. With LAUNCHER, a launcher of MPI and its options without a
/// program, measures on the hosts of the launcher, in single precision.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "tributary bench [OPTIONS] <COLLECTIVE>\n       \
                            tributary bench [OPTIONS] -- <LAUNCHER>...")]
pub(crate) struct BenchFlags {
    /// The collective to time between processes of this machine
    #[arg(value_enum, value_name = "COLLECTIVE", conflicts_with = "launcher")]
    pub(crate) collective: Option<CollectiveFlag>,

    /// A launcher of MPI and its options, without a program
    #[arg(last = true, value_name = "LAUNCHER", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) launcher: Vec<OsString>,

    /// Sizes in bytes: a list (8,1K,1M) or every power of two of a range (4:1M); by default
    /// 8,1K,64K,1M
    #[arg(long, value_name = "SIZES")]
    pub(crate) sizes: Option<String>,

    /// Operations timed per size, with LAUNCHER blocks of them in each round; by default 1000 up to 8 KiB, fewer above
    #[arg(long, value_name = "N", value_parser = whole_number(1..=10_000_000))]
    pub(crate) iters: Option<u64>,

    /// Operations before the timed ones; by default a tenth of them
    #[arg(long, value_name = "N", value_parser = whole_number(0..=10_000_000))]
    pub(crate) warmup: Option<u64>,

    /// Write one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) own: OwnFlags,

    #[command(flatten)]
    pub(crate) launched: super::LaunchedFlags,
}

/// What is said about processes that the program starts itself.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options with COLLECTIVE")]
pub(crate) struct OwnFlags {
    /// Processes to start
    #[arg(long, value_name = "N", default_value = "4", value_parser = whole_number(1..=256))]
    #[arg(conflicts_with = "launcher")]
    pub(crate) procs: u64,

    /// Let this machine act as N hosts; ranks are dealt out in blocks
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number(1..=64))]
    #[arg(conflicts_with = "launcher")]
    pub(crate) hosts: u64,

    /// Type of an element
    #[arg(long, value_name = "TYPE", default_value = "f32", conflicts_with = "launcher")]
    pub(crate) dtype: String,

    /// Operator of allreduce and reduce
    #[arg(long, value_name = "OPERATOR", conflicts_with = "launcher")]
    pub(crate) op: Option<String>,

    /// Paths to compare: auto reduces inside each host and then between hosts, host makes all
    /// processes one host, tree makes every process an endpoint of the tree, direct connects every
    /// process to the others by direct links
    #[arg(long, value_enum, value_name = "PATHS", default_value = "auto", value_delimiter = ',')]
    #[arg(conflicts_with = "launcher")]
    pub(crate) algo: Vec<PathFlag>,

    /// How processes reach their aggregation node
    #[arg(long, value_enum, value_name = "TRANSPORT", default_value = "auto")]
    #[arg(conflicts_with = "launcher")]
    pub(crate) transport: super::TransportFlag,

    /// Start each operation, compute as long as it takes alone, and wait: measures how much of it the
    /// computation hides, in the manner of osu_iallreduce
    #[arg(long, conflicts_with = "launcher")]
    pub(crate) overlap: bool,

    /// Do not check results
    #[arg(long, conflicts_with = "launcher")]
    pub(crate) no_verify: bool,
}

/// A collective that can be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

impl From<CollectiveFlag> for Collective {
    fn from(flag: CollectiveFlag) -> Self {
        match flag {
            CollectiveFlag::Allreduce => Self::Allreduce,
            CollectiveFlag::Reduce => Self::Reduce,
            CollectiveFlag::Barrier => Self::Barrier,
            CollectiveFlag::Bcast => Self::Bcast,
        }
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
