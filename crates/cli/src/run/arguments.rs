//! The checked arguments of `tributary run`: program and library.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tributary_client::{Settings, knobs};

use super::{library, program};
use crate::flags::{RunFlags, SwitchFlag, TransportFlag};
use crate::usage::{self, UsageError};

/// A run that can start.
#[derive(Clone, Debug)]
pub(super) struct Arguments {
    /// The command's first word as a path to a program.
    pub(super) program: PathBuf,
    /// The command as it was typed.
    pub(super) command: Vec<OsString>,
    /// The preload library.
    pub(super) library: PathBuf,
    pub(super) hosts: u32,
    /// Whether this run brings an aggregator for the hosts of the command.
    pub(super) brings_aggregator: bool,
    pub(super) transport: TransportFlag,
    /// As the option says; none: as the environment does.
    pub(super) offload: Option<SwitchFlag>,
    /// Where to put the report as JSON.
    pub(super) report: Option<PathBuf>,
    /// Whether the report is to tell times: somebody asked for a report.
    pub(super) times: bool,
}

impl TryFrom<RunFlags> for Arguments {
    type Error = UsageError;

    fn try_from(flags: RunFlags) -> Result<Self, UsageError> {
        let settings = Settings::from_env().map_err(usage::from_setting)?;
        let program = program::find(&flags.command[0]).ok_or_else(|| {
            let word = flags.command[0].to_string_lossy();
            UsageError::new("COMMAND", word, "a program, by its path or on PATH, is allowed")
        })?;
        let hosts = match flags.hosts {
            Some(hosts) => u32::try_from(hosts).expect("the option's range ends at 64"),
            None => settings.hosts,
        };
        let report = flags.report.or_else(|| std::env::var_os(knobs::REPORT.name));
        Ok(Self {
            program,
            library: library::find()?,
            hosts,
            brings_aggregator: flags.aggregator,
            transport: flags.transport,
            offload: flags.offload,
            times: report.as_ref().is_some_and(|report| !report.is_empty()),
            report: report_path(report)?,
            command: flags.command,
        })
    }
}

/// The report's path, of the option or the environment. `None` for `-` and an empty path.
fn report_path(given: Option<OsString>) -> Result<Option<PathBuf>, UsageError> {
    let Some(path) = given.filter(|path| !path.is_empty() && path != "-") else {
        return Ok(None);
    };
    let refused = |allowed: &str| UsageError::new("--report", path.to_string_lossy(), allowed);
    let absolute = std::path::absolute(&path).map_err(|error| refused(&error.to_string()))?;
    let is_in_folder = absolute.parent().is_some_and(Path::is_dir);
    if !is_in_folder || absolute.is_dir() {
        return Err(refused("a file in an existing folder, or -, is allowed"));
    }
    Ok(Some(absolute))
}
