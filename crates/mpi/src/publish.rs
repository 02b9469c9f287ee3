//! The report: adds up every process's counts, and writes them where the environment says.

use std::ffi::{c_char, c_int};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tributary_client::knobs;
use tributary_client::report::Report;

use crate::message;
use crate::process::counters;
use crate::times;

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("the counts of a process can't be read: {0}")]
    Damaged(serde_json::Error),
    #[error("report {}: {problem}", path.display())]
    File { path: PathBuf, problem: io::Error },
}

fn knob(knob: &'static knobs::Knob) -> String {
    knob.value(|name| std::env::var(name).ok()).value
}

/// Whether the environment asks for a report.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_report_wanted() -> c_int {
    c_int::from(!knob(&knobs::REPORT).is_empty())
}

/// This process's counts as JSON.
///
/// # Safety
/// `len_bytes` is valid for writing during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_report(len_bytes: *mut usize) -> *mut c_char {
    let report = Report { times: times::measured(), ..counters().report() };
    let text = serde_json::to_vec(&report).expect("a report is plain data");
    let text = text.into_boxed_slice();
    // SAFETY: `len_bytes` is valid during this call: the header's rule on pointers.
    unsafe { len_bytes.write(text.len()) };
    Box::into_raw(text).cast()
}

/// Frees a text of `tributary_report`.
///
/// # Safety
/// One call of `tributary_report` gave `text` and `len_bytes`, and nothing uses the text any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_report_free(text: *mut c_char, len_bytes: usize) {
    let text = std::ptr::slice_from_raw_parts_mut(text.cast::<u8>(), len_bytes);
    // SAFETY: this function's contract: pointer and length are those of the box that
    // `tributary_report` gave away, and nothing uses it any more.
    drop(unsafe { Box::from_raw(text) });
}

/// Adds up the counts of all processes and writes them.
///
/// # Safety
/// `len_bytes` points to `ranks` lengths and `texts` to as many bytes as they add up to, both valid
/// during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_report_publish(
    texts: *const c_char,
    len_bytes: *const usize,
    ranks: usize,
) -> c_int {
    // SAFETY: the header asks for `ranks` lengths, valid during this call.
    let lengths = unsafe { std::slice::from_raw_parts(len_bytes, ranks) };
    let total_bytes = lengths.iter().sum();
    // SAFETY: the header asks for the texts one behind the other, so for the sum of their lengths.
    let texts = unsafe { std::slice::from_raw_parts(texts.cast::<u8>(), total_bytes) };
    let outcome = add_up(texts, lengths).and_then(|report| {
        let path = knob(&knobs::REPORT);
        if path == "-" { write_text(&report) } else { write_file(Path::new(&path), &report) }
    });
    message::status(outcome)
}

fn add_up(mut texts: &[u8], lengths: &[usize]) -> Result<Report, PublishError> {
    let mut job = Report { run_id: knob(&knobs::RUN_ID), jobs: 1, ..Report::default() };
    for length in lengths {
        let (text, rest) = texts.split_at(*length);
        texts = rest;
        job.merge(&serde_json::from_slice(text).map_err(PublishError::Damaged)?);
    }
    Ok(job)
}

fn write_text(report: &Report) -> Result<(), PublishError> {
    let path = PathBuf::from("standard error");
    io::stderr()
        .write_all(report.to_string().as_bytes())
        .map_err(|problem| PublishError::File { path, problem })
}

/// Writes the report, and adds the one of the same run that is there already. A lock on the directory
/// serialises jobs that end at the same time. The file is replaced whole, so a reader never sees half
/// of it.
fn write_file(path: &Path, report: &Report) -> Result<(), PublishError> {
    let failed = |problem| PublishError::File { path: path.to_owned(), problem };
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
        write_file(&path, &report("a")).unwrap();
        write_file(&path, &report("a")).unwrap();
        assert_eq!((read().jobs, read().in_node), (2, 6));
        write_file(&path, &report("b")).unwrap();
        assert_eq!((read().jobs, read().in_node), (1, 3));
        write_file(&path, &report("")).unwrap();
        write_file(&path, &report("")).unwrap();
        assert_eq!((read().jobs, read().in_node), (1, 3));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no partial file stays");
    }

    #[test]
    fn a_path_that_is_none_is_named() {
        let error = write_file(Path::new("/nowhere/at/all.json"), &report("a")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all.json"), "{error}");
    }
}
