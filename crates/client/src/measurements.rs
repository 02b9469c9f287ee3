//! Which measurements of the system decide: those that the user names, the manager's, or a file of the user's own.
//!
//! Rank 0 of the job finds them when the job opens, and all ranks have the same: other hosts may lack its environment and its files.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tributary_settings::{Settings, TuningChoice};
use tributary_tuning::Tuning;

use crate::manager::ManagerClient;

/// What rank 0 has found, for all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measurements {
    tuning: Tuning,
    /// Whether the user named them: they hold whatever hosts they were made on.
    is_named: bool,
    /// Why those that were to decide can't be used.
    problem: Option<String>,
}

impl Measurements {
    /// Those that decide for a job. `manager` is one that has admitted it and serves measurements.
    pub(crate) fn find(settings: &Settings, manager: Option<&ManagerClient>) -> Self {
        let found = match &settings.tuning {
            TuningChoice::File(path) => read(path),
            TuningChoice::Auto if settings.hosts == 1 => match manager {
                Some(manager) => ask_manager(manager),
                None => {
                    let own = Tuning::own_file().filter(|path| path.exists());
                    own.map_or_else(|| Ok(Tuning::default()), |path| read(&path))
                }
            },
            // To show the tree is what emulated hosts are for.
            TuningChoice::Auto | TuningChoice::Off => Ok(Tuning::default()),
        };
        let is_named = settings.tuning.file().is_some();
        let problem = found.as_ref().err().cloned();
        Self { tuning: found.unwrap_or_default(), is_named, problem }
    }

    /// Those that decide between hosts, which may share a kernel.
    ///
    /// # Errors
    /// Why those that the user named can't be used.
    pub(crate) fn between(&self, one_kernel: bool) -> Result<Tuning, String> {
        match &self.problem {
            Some(problem) if self.is_named => Err(problem.clone()),
            _ if self.is_named || self.tuning.is_of(one_kernel) => Ok(self.tuning.clone()),
            _ => Ok(Tuning::default()),
        }
    }

    /// Why those that nobody named do not decide, although they are there.
    pub(crate) fn remark(&self) -> Option<String> {
        let problem = self.problem.as_deref().filter(|_| !self.is_named)?;
        Some(format!("{problem}; nothing that was measured decides"))
    }
}

fn ask_manager(manager: &ManagerClient) -> Result<Tuning, String> {
    let text = manager.tuning().map_err(|error| error.to_string())?;
    Tuning::from_toml(&text).map_err(|problem| format!("the manager's measurements: {problem}"))
}

fn read(path: &Path) -> Result<Tuning, String> {
    Tuning::read(path).map_err(|error| error.to_string())
}
