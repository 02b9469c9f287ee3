//! `tributary sim`.

use std::ops::Range;
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

const PREDICT_EXAMPLES: &str = "\
Examples:
  tributary sim predict
  tributary sim predict --preset this-machine.toml
  tributary sim predict --endpoints 2,4 --sizes 8,4096 --json
  tributary tune --measure tuning.toml
  tributary sim predict --tuning tuning.toml

Three steps: what single system calls take here is measured, as by tributary tune --measure; the \
benchmark is run; and the simulator, which knows nothing of the benchmark's times, predicts them. \
Keep the machine quiet meanwhile: it takes half a minute.";

const SWARM_EXAMPLES: &str = "\
Examples:
  tributary sim swarm --seeds 0..100000
  tributary sim swarm --seeds 4711..4712  one seed, with its story if it fails
  tributary sim swarm --seeds 0..10000 --json";

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
    Predict(PredictFlags),
    Bench(SimBenchFlags),
    Swarm(SwarmFlags),
}

/// Make the published figures again, with the published values beside the simulated ones
#[derive(Debug, Args)]
#[command(after_help = FIGURE_EXAMPLES)]
pub(crate) struct FigureFlags {
    /// The figure; `--list` says which there are
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "list"])]
    pub(crate) name: Option<String>,

    /// Make every figure
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,

    /// Say which figures there are, and make none
    #[arg(long)]
    pub(crate) list: bool,

    /// Directory for NAME.csv, NAME.txt and NAME.svg; made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Operations behind each point
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) operations: u32,
}

/// What system, and what is run on it
#[derive(Debug, Args)]
pub(crate) struct SystemFlags {
    /// A preset that comes with the program
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

    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Operations behind each number
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) operations: u32,

    /// Write CSV
    #[arg(long)]
    pub(crate) csv: bool,
}

/// Simulate allreduce on a cluster: in the tree, and by hosts alone
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct SimRunFlags {
    #[command(flatten)]
    pub(crate) system: SystemFlags,

    /// Write a preset that comes with the program to standard output, to begin a file with
    #[arg(long, value_name = "NAME")]
    pub(crate) print_preset: Option<String>,
}

/// Rank ways to run a cluster's allreduce: leaders, channels, tree or hosts alone
#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareFlags {
    #[command(flatten)]
    pub(crate) system: SystemFlags,
}

/// Predict the benchmark on this machine, and run it beside
#[derive(Debug, Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub(crate) struct PredictFlags {
    /// Numbers of processes, each a host to the others
    #[arg(long, value_name = "N,...", default_value = "2,4,8", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) endpoints: Vec<u32>,

    /// Lengths of the vectors in bytes: multiples of 4, one segment at most
    #[arg(long, value_name = "BYTES,...", default_value = "8,1024,4096", value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(4..=16384))]
    pub(crate) sizes: Vec<u64>,

    /// Cores that measurement and benchmark are kept to. With more than one, the system decides which
    /// process runs where; the simulator does not know how, and predicts too short times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) cores: u16,

    /// Operations timed in each of the rounds
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iters: u32,

    /// Times that constants are measured and the benchmark is run; of each the middle one counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,

    /// Constants that `tributary tune` has measured, instead of measuring them now
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tuning: Option<PathBuf>,

    /// File for the preset that is predicted with
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) preset: Option<PathBuf>,

    /// Seed of the simulator
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time the simulator itself, beside what it is meant to reach
#[derive(Debug, Args)]
pub(crate) struct SimBenchFlags {
    /// Leave the fabric of 100,000 hosts out
    #[arg(long)]
    pub(crate) short: bool,
}

/// Run random systems under random faults, one per seed, and check that nothing goes wrong
#[derive(Debug, Args)]
#[command(after_help = SWARM_EXAMPLES)]
pub(crate) struct SwarmFlags {
    /// Seeds from A to before B
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub(crate) seeds: Range<u64>,

    /// Stop after so many failing seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) failures: u64,

    /// Threads; as many as there are cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads `A..B`.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let allowed = || "a range such as 0..1000 is allowed".to_owned();
    let (first, end) = text.split_once("..").ok_or_else(allowed)?;
    let range = first.parse().map_err(|_| allowed())?..end.parse().map_err(|_| allowed())?;
    if range.is_empty() {
        return Err("the second seed must be larger than the first".to_owned());
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_that_is_not_empty() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        for bad in ["", "3", "..7", "3..", "7..3", "3..3", "a..b", "-1..3"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }
}
