//! What the user says of a launcher, checked.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::flags::MeasuringFlags;
use crate::run::program;
use crate::usage::UsageError;

/// A launcher, and where its MPI's compiler and a common folder are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// The launcher and its options, without a program.
    pub(super) words: Vec<OsString>,
    /// The launcher's first word as a path to a program.
    pub(super) program: PathBuf,
    pub(super) mpicc: Option<OsString>,
    pub(super) folder: PathBuf,
}

impl Job {
    pub(crate) fn new(words: &[OsString], flags: &MeasuringFlags) -> Result<Self, UsageError> {
        let program = program::find(&words[0]).ok_or_else(|| {
            let allowed = "a launcher of MPI, by its path or on PATH, is allowed";
            UsageError::new("LAUNCHER", words[0].to_string_lossy(), allowed)
        })?;
        let refused = |why: &str| UsageError::new("--folder", flags.folder.to_string_lossy(), why);
        let folder =
            std::path::absolute(&flags.folder).map_err(|error| refused(&error.to_string()))?;
        if !folder.is_dir() {
            return Err(refused("an existing folder, which all hosts have, is allowed"));
        }
        Ok(Self { words: words.to_vec(), program, mpicc: flags.mpicc.clone(), folder })
    }
}
