//! `tributary report`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const EXAMPLES: &str = "\
Examples:
  tributary run --report ours.json -- mpirun -n 4 ./app
  tributary run --report plain.json --offload off -- mpirun -n 4 ./app
  tributary report ours.json
  tributary report ours.json --baseline plain.json --plot gain.svg

Times are of blocking collectives, from call to return, so they include waiting for other ranks; \
calls and times are summed over all ranks. A size is what a rank contributes. p50 and p99 are \
bounds: half of the calls, or all but a hundredth, took no longer than the higher one.";

/// Show what a report tells: paths, reasons, and time inside collectives
///
/// The report is a file of `tributary run --report`, or of TRIBUTARY_REPORT. With a baseline, a report of
/// the same program with offloading off, it shows what offloading gave, by collective and size.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportFlags {
    /// The report
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Compare with this report
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) baseline: Option<PathBuf>,

    /// Draw the times as SVG to this file; a box holds the middle half of the calls
    #[arg(long, value_name = "SVG", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}
