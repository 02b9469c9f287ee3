//! `tributary sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const FIGURE_EXAMPLES: &str = "\
Examples:
  tributary sim figure table1 --out figures
  tributary sim figure --all --out figures
  tributary sim figure --list";

const RUN_EXAMPLES: &str = "\
Examples:
  tributary sim run --config cluster.toml
  tributary sim run --preset ethernet-25 --hosts 8 --sizes 8,4096
  tributary sim run --print-preset edr-sharp > cluster.toml";

const COMPARE_EXAMPLES: &str = "\
Examples:
  tributary sim compare --config cluster.toml
  tributary sim compare --preset edr-sharp --hosts 64 --processes 28 --sizes 8";

const CALIBRATE_EXAMPLES: &str = "\
Examples:
  tributary sim calibrate
  tributary sim calibrate --leave-one-out --csv > errors.csv";

/// Simulate fabrics: the product's own protocol machines over a modelled network
#[derive(Debug, Args)]
pub(crate) struct SimFlags {
    #[command(subcommand)]
    pub(crate) action: SimAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimAction {
    Figure(FigureFlags),
    Run(SimRunFlags),
    Compare(CompareFlags),
    Calibrate(CalibrateFlags),
    Sensitivity(SensitivityFlags),
    Bench(SimBenchFlags),
}

/// Reproduce the published figures, with published values beside simulated ones
#[derive(Debug, Args)]
#[command(after_help = FIGURE_EXAMPLES)]
pub(crate) struct FigureFlags {
    /// The figure; `--list` lists the names
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "list"])]
    pub(crate) name: Option<String>,

    /// Make every figure
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,

    /// List the figures, and make none
    #[arg(long)]
    pub(crate) list: bool,

    /// Directory for NAME.csv, NAME.txt and NAME.svg; created if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Operations for each point
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) operations: u32,
}

/// The system, and the operations to run on it
#[derive(Debug, Args)]
pub(crate) struct SystemFlags {
    /// A preset of the program
    #[arg(long, value_name = "NAME", conflicts_with = "config", default_value = "edr-sharp")]
    pub(crate) preset: String,

    /// A preset file of your own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Hosts that take part; all of them by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) hosts: Option<u32>,

    /// Processes on each host
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) processes: u32,

    /// Lengths of the vectors in bytes
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        default_value = "8,256,4096,65536"
    )]
    pub(crate) sizes: Vec<usize>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Operations for each number
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) operations: u32,

    /// Write CSV
    #[arg(long)]
    pub(crate) csv: bool,
}

/// Simulate allreduce on a cluster: in the tree, and by host algorithms
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct SimRunFlags {
    #[command(flatten)]
    pub(crate) system: SystemFlags,

    /// Write a preset of the program to standard output, as a start for a file
    #[arg(long, value_name = "NAME")]
    pub(crate) print_preset: Option<String>,
}

/// Rank designs of a cluster's allreduce: leaders, channels, tree or host algorithms
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareFlags {
    #[command(flatten)]
    pub(crate) system: SystemFlags,
}

/// Fit the constants of the published tables' machine again, and show every error
#[derive(Debug, Args)]
#[command(after_help = CALIBRATE_EXAMPLES)]
pub(crate) struct CalibrateFlags {
    /// Also fit without each observation in turn, and show the error of the one left out; takes minutes
    #[arg(long)]
    pub(crate) leave_one_out: bool,

    #[command(flatten)]
    pub(crate) effort: CalibrationEffort,
}

/// Change each fitted constant by a fifth, and show which published figure moves
#[derive(Debug, Args)]
pub(crate) struct SensitivityFlags {
    #[command(flatten)]
    pub(crate) effort: CalibrationEffort,
}

/// How much a calibration simulates
#[derive(Debug, Args)]
pub(crate) struct CalibrationEffort {
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Operations for each observation
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) operations: u32,

    /// Write CSV
    #[arg(long)]
    pub(crate) csv: bool,
}

/// Time the simulator itself, beside its targets
#[derive(Debug, Args)]
pub(crate) struct SimBenchFlags {
    /// Leave out the fabric of 100,000 hosts
    #[arg(long)]
    pub(crate) short: bool,
}
