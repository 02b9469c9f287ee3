//! The part of `tributary bench` that measures through a launcher of MPI.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use crate::usage::whole_number;

/// What is said about a measurement through a launcher.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options with LAUNCHER")]
pub(crate) struct LaunchedFlags {
    /// Collectives to time
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        default_value = "allreduce",
        value_delimiter = ','
    )]
    #[arg(conflicts_with = "collective")]
    pub(crate) collectives: Vec<LaunchedCollective>,

    /// Time the nonblocking form of each collective too: the start and the wait together
    #[arg(long, requires = "launcher", conflicts_with = "collective")]
    pub(crate) nonblocking: bool,

    /// Time calls in place, of those collectives that have them: not barrier and bcast
    #[arg(long, requires = "launcher", conflicts_with = "collective")]
    pub(crate) in_place: bool,

    /// Time the plain MPI too, in turns, and print how many times as long it takes
    #[arg(long, requires = "launcher", conflicts_with = "collective")]
    pub(crate) peer: bool,

    /// Rounds: how often the launcher is started; with --peer twice in each, and every other round begins with the plain MPI
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole_number(1..=100))]
    #[arg(conflicts_with = "collective")]
    pub(crate) rounds: u64,

    /// Write figures, kind of network, versions and numbers of hosts and ranks to FILE as JSON, to be passed on: it holds no name of
    /// a host or a person, no address and no path
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(requires = "launcher", conflicts_with = "collective")]
    pub(crate) report: Option<PathBuf>,

    /// The MPI's compiler; by default mpicc beside the launcher, else the one on PATH
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    #[arg(requires = "launcher", conflicts_with = "collective")]
    pub(crate) mpicc: Option<OsString>,

    /// Where to put the measuring program until the end: a folder that all hosts have under this path
    #[arg(long, value_name = "FOLDER", default_value = ".", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with = "collective")]
    pub(crate) folder: PathBuf,
}

/// A collective of the measuring program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum LaunchedCollective {
    Allreduce,
    Reduce,
    Bcast,
    Barrier,
    Allgather,
    ReduceScatter,
    Scan,
}

impl LaunchedCollective {
    /// As it is typed, and as the measuring program has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "allreduce",
            Self::Reduce => "reduce",
            Self::Bcast => "bcast",
            Self::Barrier => "barrier",
            Self::Allgather => "allgather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scan => "scan",
        }
    }
}
