//! The report's file, to which every process or job of one run adds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::Report;

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
#[error("report {}: {problem}", path.display())]
pub struct WriteError {
    /// Where to.
    pub path: PathBuf,
    /// What the system says.
    pub problem: io::Error,
}

/// Writes the report, and adds the one of the same run that is there already. A lock on the directory
/// serialises those that end at the same time. The file is replaced whole, so a reader never sees half
/// of it.
///
/// # Errors
/// If the file can't be written.
pub fn add_to_file(path: &Path, report: &Report) -> Result<(), WriteError> {
    let failed = |problem| WriteError { path: path.to_owned(), problem };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(directory.unwrap_or(Path::new("."))).map_err(failed)?;
    rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|errno| failed(errno.into()))?;
    let mut report = report.clone();
    let earlier = fs::read(path).ok();
    let earlier = earlier.and_then(|text| serde_json::from_slice::<Report>(&text).ok());
    if let Some(earlier) =
        earlier.filter(|earlier| !report.run_id.is_empty() && earlier.run_id == report.run_id)
    {
        report.merge(&earlier);
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let text = serde_json::to_string_pretty(&report).expect("a report is plain data");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        fs::rename(&partial, path)
    };
    write().map_err(|problem| {
        // The file may not exist.
        let _ = fs::remove_file(&partial);
        failed(problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(run_id: &str) -> Report {
        let mut report = Report { run_id: run_id.to_owned(), jobs: 1, ..Report::default() };
        let text = r#"{"label":"world","ranks":2,"hosts":1,"communicators":1,
            "collectives":{"allreduce":{"in_node":3,"in_tree":0,"passed_through":0}}}"#;
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
        assert_eq!((read().jobs, read().in_node), (2, 6));
        add_to_file(&path, &report("b")).unwrap();
        assert_eq!((read().jobs, read().in_node), (1, 3));
        add_to_file(&path, &report("")).unwrap();
        add_to_file(&path, &report("")).unwrap();
        assert_eq!((read().jobs, read().in_node), (1, 3));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no partial file stays");
    }

    #[test]
    fn a_path_that_is_none_is_named() {
        let error = add_to_file(Path::new("/nowhere/at/all.json"), &report("a")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all.json"), "{error}");
    }
}
