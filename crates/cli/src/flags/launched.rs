//! What measures through a launcher of MPI.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use tributary_measuring::Collective;

use crate::usage::whole_number;

/// What is said about a measurement through a launcher.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options with LAUNCHER")]
pub(crate) struct LaunchedFlags {
    /// Collectives to time
    #[arg(
        long,
        value_parser = collective(),
        value_name = "LIST",
        default_value = "allreduce",
        value_delimiter = ','
    )]
    #[arg(conflicts_with = "collective")]
    pub(crate) collectives: Vec<Collective>,

    /// Time the nonblocking form of each collective too: the start and the wait together
    #[arg(long, requires = "launcher", conflicts_with = "collective")]
    pub(crate) nonblocking: bool,

    /// Time calls in place, of those collectives that have them: not barrier and bcast
    #[arg(long, requires = "launcher", conflicts_with = "collective")]
    pub(crate) in_place: bool,

    /// Time the plain MPI too, in turns, and print how many times as long it takes
    #[arg(long, requires = "launcher", conflicts_with = "collective")]
    pub(crate) peer: bool,

    /// How often the launcher is started; with --peer as often for the plain MPI, which begins every other round
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole_number(1..=100))]
    #[arg(conflicts_with = "collective")]
    pub(crate) rounds: u64,

    /// Write figures, kind of network, versions and numbers of hosts and ranks to FILE as JSON, to be passed on: it
    /// holds no name of a host or a person, no address and no path
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(requires = "launcher", conflicts_with = "collective")]
    pub(crate) report: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) measuring: MeasuringFlags,
}

/// Where the measuring program comes from.
#[derive(Debug, Args)]
pub(crate) struct MeasuringFlags {
    /// The MPI's compiler; by default mpicc beside the launcher, else the one on PATH
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    #[arg(requires = "launcher")]
    pub(crate) mpicc: Option<OsString>,

    /// Where to put the measuring program until the end: a folder that all hosts have under this path
    #[arg(long, value_name = "FOLDER", default_value = ".", value_hint = ValueHint::DirPath)]
    #[arg(requires = "launcher")]
    pub(crate) folder: PathBuf,
}

/// Reads a collective's name.
fn collective() -> impl TypedValueParser<Value = Collective> {
    PossibleValuesParser::new(Collective::ALL.map(Collective::name)).map(|name| {
        let mut all = Collective::ALL.into_iter();
        all.find(|collective| collective.name() == name)
            .expect("the parser takes their names alone")
    })
}
