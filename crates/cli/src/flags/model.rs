//! `tributary model` and `tributary tune`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{CollectiveFlag, MeasuringFlags};
use crate::usage::{non_negative, whole_number};

const MODEL_EXAMPLES: &str = "\
Examples:
  tributary tune --measure tuning.toml && tributary model --tuning tuning.toml
  tributary model --measure --hosts 2 --ppn 16
  tributary model --hosts 16 --ppn 28 --sizes 4K:1M \\
      --network-startup-ns 1500 --network-ns-per-byte 0.08 \\
      --memory-startup-ns 60 --memory-ns-per-byte 0.08 \\
      --reduce-ns-per-byte 0.05

The model is that of Bayatpour et al. (SC 2017), section 5. A measured time stands beside the model's \
if the file has one for the same hosts, ranks, length and leaders: that of the fastest path.";

const TUNE_EXAMPLES: &str = "\
Examples:
  tributary tune --measure tuning.toml  constants only: some seconds
  tributary tune tuning.toml            and a table of operations
  tributary tune --hosts 2,4 --ppn 1,2 --sizes 8,4K,64K,1M tuning.toml
  TRIBUTARY_TUNING=tuning.toml tributary run -- mpirun ./app
  tributary tune site.toml -- mpirun --hostfile hosts -n 8
  tributary tune --sizes 8:1M --rounds 5 site.toml -- srun -N 16

With LAUNCHER: the launcher starts a measuring program, which mpicc compiles, once for each path and round, the paths in \
turns: direct links with each host algorithm, replicated groups, more leaders where hosts have several ranks, and the \
tree where TRIBUTARY_MANAGER names a manager. The file gets medians and quartiles, and, where each host has one rank, the \
prices of the network: what messages, bytes, datagrams and aggregators cost there, as these times tell. The prices \
predict what was not measured. `tributary sim run --site FILE` simulates at them, `tributary manager --tuning FILE` gives \
the file to all jobs, and a job without a manager reads ~/.config/tributary/tuning.toml.

Without LAUNCHER processes of this machine act as the hosts, over its own network stack. The table is exact for jobs on \
one machine; for a cluster it only orders the paths roughly.";

/// Predict allreduces with data-partitioned leaders, beside measured times
#[derive(Debug, Args)]
#[command(after_help = MODEL_EXAMPLES)]
pub(crate) struct ModelFlags {
    /// File that `tributary tune` wrote: constants, and measured times
    #[arg(long, value_name = "FILE", env = "TRIBUTARY_TUNING", value_hint = ValueHint::FilePath)]
    pub(crate) tuning: Option<PathBuf>,

    /// Measure now, with processes of this machine as hosts; without a file, constants too
    #[arg(long)]
    pub(crate) measure: bool,

    /// With --measure, operations timed per size and number of leaders
    #[arg(long, value_name = "N", default_value = "100", value_parser = whole_number(1..=1_000_000))]
    pub(crate) iters: u64,

    /// Number of hosts
    #[arg(long, value_name = "N", default_value = "16", value_parser = whole_number(1..=1_000_000))]
    pub(crate) hosts: u64,

    /// Processes per host
    #[arg(long, value_name = "N", default_value = "28", value_parser = whole_number(1..=4096))]
    pub(crate) ppn: u64,

    /// Sizes in bytes: a list (8,1K,1M) or every power of two of a range (4:1M)
    #[arg(long, value_name = "SIZES", default_value = "8,1K,8K,64K,512K,1M")]
    pub(crate) sizes: String,

    /// Most sub-partitions to try for each leader's share
    #[arg(long, value_name = "K", default_value = "16", value_parser = whole_number(1..=1024))]
    pub(crate) sub_partitions: u64,

    /// Between hosts, nanoseconds before the first byte (a)
    #[arg(long, value_name = "NS", value_parser = non_negative)]
    pub(crate) network_startup_ns: Option<f64>,

    /// Between hosts, nanoseconds per byte (b)
    #[arg(long, value_name = "NS", value_parser = non_negative)]
    pub(crate) network_ns_per_byte: Option<f64>,

    /// In shared memory, nanoseconds before the first byte (a')
    #[arg(long, value_name = "NS", value_parser = non_negative)]
    pub(crate) memory_startup_ns: Option<f64>,

    /// In shared memory, nanoseconds per byte copied (b')
    #[arg(long, value_name = "NS", value_parser = non_negative)]
    pub(crate) memory_ns_per_byte: Option<f64>,

    /// Combining, nanoseconds per byte (c)
    #[arg(long, value_name = "NS", value_parser = non_negative)]
    pub(crate) reduce_ns_per_byte: Option<f64>,

    /// Write one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure this machine or the hosts of a launcher, and write the file by which communicators select paths
#[derive(Debug, Args)]
#[command(after_help = TUNE_EXAMPLES)]
#[command(override_usage = "tributary tune [OPTIONS] <FILE>\n       \
                            tributary tune [OPTIONS] <FILE> -- <LAUNCHER>...")]
pub(crate) struct TuneFlags {
    /// File to write; TRIBUTARY_TUNING names it to programs
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// A launcher of MPI and its options, without a program
    #[arg(last = true, value_name = "LAUNCHER", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) launcher: Vec<OsString>,

    /// Measure only the constants of the cost model
    #[arg(long, conflicts_with = "launcher")]
    pub(crate) measure: bool,

    /// This host's address on the network to measure
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", conflicts_with = "launcher")]
    pub(crate) address: IpAddr,

    /// Numbers of hosts
    #[arg(long, value_name = "N,...", default_value = "2,4", value_delimiter = ',',
        value_parser = whole_number(2..=64), conflicts_with = "launcher")]
    pub(crate) hosts: Vec<u64>,

    /// Numbers of processes per host
    #[arg(long, value_name = "N,...", default_value = "1,2", value_delimiter = ',',
        value_parser = whole_number(1..=64), conflicts_with = "launcher")]
    pub(crate) ppn: Vec<u64>,

    /// Sizes in bytes: a list (8,1K,1M) or every power of two of a range (4:1M)
    #[arg(long, value_name = "SIZES", default_value = "8,4K,64K,1M")]
    pub(crate) sizes: String,

    /// Collectives to measure
    #[arg(
        long,
        value_enum,
        value_name = "COLLECTIVE,...",
        default_value = "allreduce",
        value_delimiter = ','
    )]
    pub(crate) collectives: Vec<CollectiveFlag>,

    /// Operations timed per size and path; with LAUNCHER blocks of them in each round
    #[arg(long, value_name = "N", default_value = "200", value_parser = whole_number(1..=1_000_000))]
    pub(crate) iters: u64,

    /// How often the launcher is started for each path
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole_number(1..=100))]
    #[arg(requires = "launcher")]
    pub(crate) rounds: u64,

    #[command(flatten)]
    pub(crate) measuring: MeasuringFlags,
}
