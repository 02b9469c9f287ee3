//! The report's file, to which every process or job of one run adds.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Report;
use crate::output::{self, Place};

/// Mode of a report's file, as far as the process's mask allows it.
const FILE_MODE: u32 = 0o666;

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
#[error("report {}: {problem}", path.display())]
pub struct WriteError {
    /// Where to.
    pub path: PathBuf,
    /// What the system says.
    pub problem: io::Error,
}

/// Longest report that is read: thousands of communicators.
pub const REPORT_BYTES_MAX: u64 = 256 << 20;

/// How long another may hold the lock.
const LOCKED_WITHIN: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Writes the report, and adds the one of the same run that is there already. A lock on the directory
/// serialises those that end at the same time. A file is replaced whole, so a reader never sees half
/// of it; a device, a pipe or a link is written in place.
///
/// # Errors
/// If the file can't be written.
pub fn add_to_file(path: &Path, report: &Report) -> Result<(), WriteError> {
    let failed = |problem| WriteError { path: path.to_owned(), problem };
    let _locked = lock_folder(path).map_err(failed)?;
    let mut report = report.clone();
    if let Some(earlier) = earlier(path)
        && !report.run_id.is_empty()
        && earlier.run_id == report.run_id
    {
        report.merge(&earlier);
    }
    let mut text = serde_json::to_vec_pretty(&report).expect("a report is plain data");
    text.push(b'\n');
    output::write(path, &text, FILE_MODE).map_err(failed)
}

/// The report that a file holds; none if the path is no file, which may be endless, or holds something else.
fn earlier(path: &Path) -> Option<Report> {
    if Place::of(path) == Place::Open || !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    serde_json::from_slice(&output::read(path, REPORT_BYTES_MAX).ok()?).ok()
}

/// A lock on a folder, as long as the value lives.
struct FolderLock(File);

impl Drop for FolderLock {
    /// Not only by closing the folder: a worker that is forked meanwhile has a copy of it.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Locks the folder of a path. Anybody who may read the folder may hold the lock, so it is not waited for without end.
fn lock_folder(path: &Path) -> io::Result<FolderLock> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")))?;
    let until = Instant::now() + LOCKED_WITHIN;
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(FolderLock(folder)),
            Err(Errno::AGAIN) if Instant::now() < until => thread::sleep(LOCK_PAUSE),
            Err(Errno::AGAIN) => {
                let message = "another process holds a lock on its folder";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(run_id: &str) -> Report {
        let mut report = Report { run_id: run_id.to_owned(), jobs: 1, ..Report::default() };
        let text = r#"{"label":"world","ranks":2,"hosts":1,"communicators":1,
            "collectives":{"allreduce":{"in_host":3,"in_tree":0,"passed_through":0}}}"#;
        report.add(&serde_json::from_str(text).unwrap());
        report
    }

    #[test]
    fn reports_of_one_run_add_up_and_others_replace() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        let read = || -> Report { serde_json::from_slice(&fs::read(&path).unwrap()).unwrap() };
        add_to_file(&path, &report("a")).unwrap();
        add_to_file(&path, &report("a")).unwrap();
        assert_eq!((read().jobs, read().in_host), (2, 6));
        add_to_file(&path, &report("b")).unwrap();
        assert_eq!((read().jobs, read().in_host), (1, 3));
        add_to_file(&path, &report("")).unwrap();
        add_to_file(&path, &report("")).unwrap();
        assert_eq!((read().jobs, read().in_host), (1, 3));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no partial file stays");
    }

    #[test]
    fn a_path_that_is_none_is_named() {
        let error = add_to_file(Path::new("/nowhere/at/all.json"), &report("a")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all.json"), "{error}");
    }
}
