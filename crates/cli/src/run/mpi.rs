//! Finds out which MPI a command uses, by asking its launcher.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::usage::UsageError;

/// A kind of MPI, by its binary interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mpi {
    /// Open MPI 4 and 5.
    OpenMpi,
    /// MPICH, Intel MPI and MVAPICH.
    Mpich,
}

impl Mpi {
    /// File name of the preload library.
    pub(super) fn library(self) -> &'static str {
        match self {
            Self::OpenMpi => "libtributary_openmpi.so",
            Self::Mpich => "libtributary_mpich.so",
        }
    }
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
        })
    }
}

/// How names of launchers begin; `mpiexec.hydra` and `mpirun-5` are launchers too.
const LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "prterun", "orterun"];

/// Words in a launcher's answer to `--version`, and the MPI that they mean.
const MARKS: [(&str, Mpi); 7] = [
    ("Open MPI", Mpi::OpenMpi),
    ("OpenRTE", Mpi::OpenMpi),
    ("PRRTE", Mpi::OpenMpi),
    ("HYDRA", Mpi::Mpich),
    ("MPICH", Mpi::Mpich),
    ("Intel(R) MPI", Mpi::Mpich),
    ("MVAPICH", Mpi::Mpich),
];

/// The MPI of a command: its launcher's if `program` is one, else that of the `mpirun` or
/// `mpiexec` on PATH, which a script or a test runner will find too.
///
/// # Errors
/// If no launcher is found, or its answer names no known MPI.
pub(super) fn of_command(program: &Path) -> Result<Mpi, UsageError> {
    let launcher = if is_launcher(program) {
        Some(program.to_owned())
    } else {
        ["mpirun", "mpiexec"].iter().find_map(|name| find_program(OsStr::new(name)))
    };
    let unclear = |why: String| {
        UsageError::new("--mpi", "", format!("one of openmpi, mpich is needed: {why}"))
    };
    let launcher = launcher.ok_or_else(|| {
        unclear(format!(
            "{} is not a launcher and PATH has no mpirun or mpiexec",
            program.display()
        ))
    })?;
    let answer = version(&launcher)
        .map_err(|error| unclear(format!("{} --version: {error}", launcher.display())))?;
    of_answer(&answer).ok_or_else(|| {
        let first = answer.lines().next().unwrap_or_default();
        unclear(format!("{} --version says '{first}'", launcher.display()))
    })
}

fn is_launcher(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    LAUNCHERS.iter().any(|launcher| name.starts_with(launcher))
}

/// The output of `launcher --version`.
fn version(launcher: &Path) -> std::io::Result<String> {
    let output = Command::new(launcher).arg("--version").stdin(Stdio::null()).output()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

fn of_answer(answer: &str) -> Option<Mpi> {
    MARKS.iter().find(|(mark, _)| answer.contains(mark)).map(|(_, mpi)| *mpi)
}

/// The program that a shell would start for `word`.
pub(super) fn find_program(word: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if word.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(word)).filter(is_program);
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(word)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_what_they_say() {
        for (answer, mpi) in [
            (
                "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/\n",
                Some(Mpi::OpenMpi),
            ),
            ("mpirun.openmpi (OpenRTE) 4.1.4\n", Some(Mpi::OpenMpi)),
            ("prterun (PRRTE) 3.0.13\n", Some(Mpi::OpenMpi)),
            ("HYDRA build details:\n    Version:    5.0.2\n", Some(Mpi::Mpich)),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.19\n", Some(Mpi::Mpich)),
            ("mpirun 1.0\n", None),
            ("", None),
        ] {
            assert_eq!(of_answer(answer), mpi, "{answer}");
        }
    }

    #[test]
    fn launchers_are_known_by_their_names() {
        for name in ["/opt/bin/mpirun", "mpiexec.hydra", "prterun"] {
            assert!(is_launcher(Path::new(name)));
        }
        for name in ["python3", "/opt/mpirun/app", "sh"] {
            assert!(!is_launcher(Path::new(name)));
        }
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find_program(OsStr::new("sh")).is_some_and(|path| path.is_absolute()));
        assert!(find_program(OsStr::new("/etc/passwd")).is_none());
        assert!(find_program(OsStr::new("/bin")).is_none());
    }
}
