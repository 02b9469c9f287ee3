//! Compiles the measuring program by the MPI's compiler, into a folder that goes away with it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tributary_measuring::SOURCE;

use super::job::Job;
use crate::run::program;
use crate::usage::UsageError;

/// The compiled program; its folder is removed with this value.
pub(crate) struct MeasuringProgram {
    folder: TempDir,
}

impl MeasuringProgram {
    /// The program.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("measure")
    }

    /// Where the first rank is to write the library's report of a start.
    pub(super) fn report_path(&self, start: u64) -> PathBuf {
        self.folder.path().join(format!("report-{start}.json"))
    }
}

/// Compiles the program.
pub(crate) fn compile(job: &Job) -> anyhow::Result<MeasuringProgram> {
    let compiler = find_compiler(job)?;
    let folder =
        tempfile::Builder::new().prefix("tributary-bench-").tempdir_in(&job.folder).with_context(
            || format!("--folder {}: no folder can be made in it", job.folder.display()),
        )?;
    let source = folder.path().join("measure.c");
    std::fs::write(&source, SOURCE).context("the measuring program's source")?;
    let program = MeasuringProgram { folder };
    let ended = Command::new(&compiler)
        .args(["-std=gnu11", "-O2", "-o"])
        .arg(program.path())
        .arg(&source)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} does not start", compiler.display()))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        let how = ended.status.code().map_or_else(
            || format!("signal {}", ended.status.signal().unwrap_or(0)),
            |code| format!("exit code {code}"),
        );
        bail!(
            "{} can't compile the measuring program ({how}): {last}; name the compiler of the launcher's MPI with \
             --mpicc, and see that it has a C compiler",
            compiler.display()
        );
    }
    Ok(program)
}

/// The compiler that is named, or the one of the launcher's MPI.
fn find_compiler(job: &Job) -> Result<PathBuf, UsageError> {
    if let Some(named) = &job.mpicc {
        return program::find(named).ok_or_else(|| {
            let allowed = "a compiler of MPI, by its path or on PATH, is allowed";
            UsageError::new("--mpicc", named.to_string_lossy(), allowed)
        });
    }
    let mut candidates = candidates(&job.program).into_iter();
    candidates.find_map(|candidate| program::find(&candidate)).ok_or_else(|| {
        let allowed = format!(
            "there is no mpicc beside {} and none on PATH, and the measuring program must be compiled: install the \
             MPI's development files or load its module, or name its compiler",
            job.program.display()
        );
        UsageError::new("--mpicc", "", allowed)
    })
}

/// What to look for: `mpicc` beside the launcher, then on PATH; first with the launcher's suffix, as in Debian's
/// `mpirun.openmpi`.
fn candidates(launcher: &Path) -> Vec<OsString> {
    let file = launcher.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let suffixed = file.split_once('.').map(|(_, suffix)| format!("mpicc.{suffix}"));
    let names: Vec<String> = suffixed.into_iter().chain(["mpicc".to_owned()]).collect();
    let folder = launcher.parent().filter(|folder| !folder.as_os_str().is_empty());
    let beside = names.iter().filter_map(|name| Some(folder?.join(name).into_os_string()));
    beside.chain(names.iter().map(OsString::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_beside_the_launcher_comes_first() {
        let words = |launcher| candidates(Path::new(launcher));
        assert_eq!(words("/mpi/bin/mpirun"), ["/mpi/bin/mpicc", "mpicc"]);
        assert_eq!(
            words("/usr/bin/mpirun.openmpi"),
            ["/usr/bin/mpicc.openmpi", "/usr/bin/mpicc", "mpicc.openmpi", "mpicc"]
        );
    }
}
