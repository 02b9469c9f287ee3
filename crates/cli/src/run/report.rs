//! The end-of-run report: where the preload library writes it, and its text.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::Context as _;
use tempfile::TempDir;
use tributary_client::report::output::{self, Place};
use tributary_client::report::{REPORT_BYTES_MAX, Report};

use super::arguments::Arguments;
use super::launchers::{self, Machine};
use crate::texts;
use tributary_views::report as views;

/// A new folder for this user alone, whatever the process's mask says.
pub(super) fn private_folder(base: &Path) -> io::Result<TempDir> {
    let mode = Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new()
        .prefix("tributary-run-")
        .permissions(mode.clone())
        .tempdir_in(base)?;
    fs::set_permissions(folder.path(), mode)?;
    Ok(folder)
}

/// Where the report of this run goes.
pub(super) struct Destination {
    path: PathBuf,
    /// Holds the file if the user named none, or one that can't be read back; removed with this value.
    _folder: Option<TempDir>,
    /// Where the report goes at the end: a device, a pipe or a link.
    copy: Option<PathBuf>,
}

impl Destination {
    /// `path`, or a temporary file. What is no file is written once, at the end, because several jobs of one run add
    /// to the report.
    pub(super) fn new(path: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(path) = path.filter(|path| Place::of(path) == Place::File) {
            return Ok(Self { path: path.to_owned(), _folder: None, copy: None });
        }
        let base = std::env::temp_dir();
        let folder = private_folder(&base).with_context(|| {
            let base = base.display();
            format!(
                "{base}: no folder for the report can be made there; set TMPDIR to one where it can"
            )
        })?;
        let (inside, copy) = (folder.path().join("report.json"), path.map(Path::to_owned));
        Ok(Self { path: inside, _folder: Some(folder), copy })
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
            Some(report) => {
                let shown = texts::printable_of(&report)?;
                writeln!(out, "\n{}", views::text(&shown))?;
                self.write_copy(&report)?;
            }
            None => writeln!(out, "\n{}", absence(arguments, status))?,
        }
        Ok(())
    }

    fn write_copy(&self, report: &Report) -> anyhow::Result<()> {
        let Some(copy) = &self.copy else { return Ok(()) };
        let text = serde_json::to_string_pretty(report)? + "\n";
        let written = output::write(copy, text.as_bytes(), 0o666);
        written.with_context(|| format!("report {}", copy.display()))
    }

    /// The report, if this run wrote one; the file may be an earlier run's.
    fn read(&self, run_id: &std::ffi::OsStr) -> anyhow::Result<Option<Report>> {
        let bytes = match output::read(&self.path, REPORT_BYTES_MAX) {
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
        let variable = |name: &str| std::env::var_os(name);
        let (program, words) = (&arguments.program, &arguments.command);
        let remedy = launchers::remedy(program, words, Machine::this(), variable);
        let remedy = remedy.map(|remedy| format!(".\ntributary: {remedy}")).unwrap_or_default();
        return format!(
            "tributary: no report: {command} ended ({status}) before MPI_Finalize{remedy}"
        );
    }
    format!(
        "tributary: no report: {command} ended, and nobody has written one here. If the first rank runs on another host, \
         its report is above; if it was lost, a line above says so. Else no process reached MPI_Finalize with the preload \
         library loaded: check that the program uses MPI, is linked dynamically, and that its processes inherit LD_PRELOAD"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_written_at_the_end_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        let destination = Destination::new(Some(&link)).unwrap();
        assert_ne!(destination.path(), link);
        let mode = fs::metadata(destination.path().parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "whatever the mask");
        let report = Report { run_id: "1".into(), in_tree: 4, ..Report::default() };
        destination.write_copy(&report).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let written: Report = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(written, report);
    }

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
