//! The end-of-run report: where the preload library writes it, and its text.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::Context as _;
use tempfile::TempDir;
use tributary_client::report::Report;

use super::arguments::Arguments;
use crate::report;

/// Where the report of this run goes.
pub(super) struct Destination {
    path: PathBuf,
    /// Holds the file if the user named none; removed with this value.
    _folder: Option<TempDir>,
}

impl Destination {
    /// `path`, or a temporary file.
    pub(super) fn new(path: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(path) = path {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let folder = tempfile::Builder::new()
            .prefix("tributary-run-")
            .tempdir()
            .context("the temporary folder for the report can't be made")?;
        Ok(Self { path: folder.path().join("report.json"), _folder: Some(folder) })
    }

    /// The file that the preload library writes.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the report to standard error, or why there is none.
    pub(super) fn show(
        &self,
        run_id: &std::ffi::OsStr,
        arguments: &Arguments,
        status: ExitStatus,
    ) -> anyhow::Result<()> {
        let mut out = io::stderr().lock();
        match self.read(run_id)? {
            Some(report) => writeln!(out, "\n{}", report::text(&report))?,
            None => writeln!(out, "\n{}", absence(arguments, status))?,
        }
        Ok(())
    }

    /// The report, if this run wrote one; the file may be an earlier run's.
    fn read(&self, run_id: &std::ffi::OsStr) -> anyhow::Result<Option<Report>> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("report {}", self.path.display()));
            }
        };
        match serde_json::from_slice::<Report>(&bytes) {
            Ok(report) => Ok(Some(report).filter(|report| run_id == report.run_id.as_str())),
            // Another file, to which this run did not write.
            Err(_) => Ok(None),
        }
    }
}

/// Why there is no report, as far as this process can tell.
fn absence(arguments: &Arguments, status: ExitStatus) -> String {
    let command = arguments.command[0].to_string_lossy();
    if !status.success() {
        return format!("tributary: no report: {command} ended ({status}) before MPI_Finalize");
    }
    format!(
        "tributary: no report: no process of {command} reached MPI_Finalize with the preload \
         library loaded. Check that the program uses MPI, is linked dynamically, and that its processes \
         inherit LD_PRELOAD"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_runs_report_is_not_taken_for_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let destination = Destination::new(Some(&path)).unwrap();
        assert_eq!(destination.read("1".as_ref()).unwrap(), None);
        let report = Report { run_id: "1".into(), in_tree: 4, ..Report::default() };
        fs::write(&path, serde_json::to_vec(&report).unwrap()).unwrap();
        assert_eq!(destination.read("1".as_ref()).unwrap(), Some(report));
        assert_eq!(destination.read("2".as_ref()).unwrap(), None);
        fs::write(&path, "not a report").unwrap();
        assert_eq!(destination.read("1".as_ref()).unwrap(), None);
    }
}
