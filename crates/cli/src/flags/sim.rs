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
  tributary sim run --preset ethernet-25 --hosts 8 --sizes 8,4K
  tributary sim run --preset ethernet-25 --aggregators 4
  tributary sim run --site site.toml --hosts 8 --sizes 8:64K
  tributary sim run --print-preset edr-sharp > cluster.toml";

const COMPARE_EXAMPLES: &str = "\
Examples:
  tributary sim compare --config cluster.toml
  tributary sim compare --preset edr-sharp --hosts 64 --processes 28 --sizes 8";

const REPLAY_EXAMPLES: &str = "\
Examples:
  tributary sim replay --mix hpcg --ranks 1024 --config cluster.toml
  tributary sim replay --print-mix hpcg > mine.toml
  tributary sim replay --mix mine.toml --preset edr-sharp --csv
  tributary sim replay --mix hpcg --preset loggp --write-goal hpcg.goal
  tributary sim replay --goal hpcg.goal --preset loggp
  tributary sim replay --trace app.trace --config cluster.toml";

const ADVISE_EXAMPLES: &str = "\
Examples:
  TRIBUTARY_TRACE=t tributary run --offload off -- mpirun -n 64 ./app
  tributary sim advise --trace t --preset edr-sharp
  tributary sim advise --trace app.trace --config cluster.toml
  tributary sim advise --trace app.trace --fabric fabric.toml";

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
    Replay(ReplayFlags),
    Advise(AdviseFlags),
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

    /// Make every figure, and show the error of every published number
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,

    /// With --all: also the error of each number left out of the fit; takes minutes
    #[arg(long, requires = "all")]
    pub(crate) leave_one_out: bool,

    /// List the figures, and make none
    #[arg(long)]
    pub(crate) list: bool,

    /// Directory for NAME.csv, .txt and .svg; created if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Operations for each point
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) operations: u32,
}

/// The cluster
#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    /// A preset of the program
    #[arg(long, value_name = "NAME", conflicts_with = "config", default_value = "edr-sharp")]
    pub(crate) preset: String,

    /// A preset file of your own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// A file that `tributary tune FILE -- LAUNCHER` wrote: its hosts on one switch, at the prices of their network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["preset", "config"])]
    pub(crate) site: Option<PathBuf>,

    /// A topology file, which replaces the preset's fabric
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) fabric: Option<PathBuf>,
}

/// The system, and the operations to run on it
#[derive(Debug, Args)]
pub(crate) struct SystemFlags {
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,

    /// Hosts that take part; all of them by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) hosts: Option<u32>,

    /// Aggregators on hosts that also run ranks: how many, or a file with a host's name on each line. By default each
    /// has a switch or a host of its own, as the preset says
    #[arg(long, value_name = "N|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) aggregators: Option<String>,

    /// Groups that run the collective at once, each with processes of its own on every host
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) groups: u32,

    /// Processes of a group on each host
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) processes: u32,

    /// Lengths of the vectors: bytes such as 8,1K,1M, or the powers of two of a range, 4:64K
    #[arg(long, value_name = "SIZES", default_value = "8,256,4K,64K")]
    pub(crate) sizes: String,

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

    /// List the presets of the program
    #[arg(long, conflicts_with = "print_preset")]
    pub(crate) list_presets: bool,
}

/// Rank designs of a cluster's allreduce: leaders, channels, tree or host algorithms
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareFlags {
    #[command(flatten)]
    pub(crate) system: SystemFlags,
}

/// Run a whole program, with a tree and without: a mix of collectives, a trace, a GOAL file
#[derive(Debug, Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub(crate) struct ReplayFlags {
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,

    #[command(flatten)]
    pub(crate) program: ProgramFlags,

    /// Processes on each host; of a mix, what it says by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) processes: Option<u32>,

    /// Ranks of a mix; what it says by default
    #[arg(long, value_name = "N", requires = "mix", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ranks: Option<u32>,

    /// Write the mix as a GOAL program, by the hosts' algorithms, and simulate nothing
    #[arg(long, value_name = "FILE", requires = "mix", value_hint = ValueHint::FilePath)]
    pub(crate) write_goal: Option<PathBuf>,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write CSV
    #[arg(long)]
    pub(crate) csv: bool,
}

/// The program to replay
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ProgramFlags {
    /// A mix file, or the name of a mix of the program
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) mix: Option<String>,

    /// A GOAL file, as LogGOPSim and ATLAHS have them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) goal: Option<PathBuf>,

    /// A trace of a real program, which TRIBUTARY_TRACE makes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,

    /// Write a mix of the program to standard output, as a start for a file
    #[arg(long, value_name = "NAME")]
    pub(crate) print_mix: Option<String>,
}

/// Say whether a tree would help a traced program, and where aggregation nodes go
#[derive(Debug, Args)]
#[command(after_help = ADVISE_EXAMPLES)]
pub(crate) struct AdviseFlags {
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,

    /// A trace of the program without a tree, which TRIBUTARY_TRACE makes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
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
#[command(after_help = "\
Examples:
  tributary sim sensitivity
  tributary sim sensitivity --operations 20 --csv")]
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
