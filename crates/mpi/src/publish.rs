//! The report: adds up every process's counts, and writes them where the environment says.

use std::ffi::{c_char, c_int};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tributary_client::knobs;
use tributary_client::report::{Report, Waits, WriteError, add_to_file};

use crate::message;
use crate::others;
use crate::process::counters;
use crate::texts::{give_away, knob, slices_of};
use crate::times;

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("the counts of a process can't be read: {0}")]
    Damaged(serde_json::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
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
    let report =
        Report { times: times::read_times(), others: others::read_others(), ..counters().report() };
    let text = serde_json::to_vec(&report).expect("a report is plain data");
    // SAFETY: `len_bytes` is valid during this call: the header's rule on pointers.
    unsafe { give_away(text, len_bytes) }
}

/// Frees a text of `tributary_report` or `tributary_trace_section`.
///
/// # Safety
/// One call of either gave `text` and `len_bytes`, and nothing uses the text any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_report_free(text: *mut c_char, len_bytes: usize) {
    let text = std::ptr::slice_from_raw_parts_mut(text.cast::<u8>(), len_bytes);
    // SAFETY: this function's contract: pointer and length are those of the box that
    // they gave away, and nothing uses it any more.
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
    // SAFETY: this function's contract is that of `given`.
    let (texts, lengths) = unsafe { slices_of(texts, len_bytes, ranks) };
    let outcome = add_up(texts, lengths).and_then(|report| {
        let path = knob(&knobs::REPORT);
        if path == "-" {
            return write_text(&report);
        }
        // The folder may be on the host of the launcher alone. A report in another form is better than none.
        let written = add_to_file(Path::new(&path), &report);
        if written.is_err() {
            write_text(&report)?;
        }
        Ok(written?)
    });
    message::status(outcome)
}

fn add_up(mut texts: &[u8], lengths: &[usize]) -> Result<Report, PublishError> {
    let mut job = Report { run_id: knob(&knobs::RUN_ID), jobs: 1, ..Report::default() };
    let mut waits = Waits::default();
    for length in lengths {
        let (text, rest) = texts.split_at(*length);
        texts = rest;
        let of_rank: Report = serde_json::from_slice(text).map_err(PublishError::Damaged)?;
        if let Some(times) = &of_rank.times {
            waits.add(&times.samples);
        }
        job.merge(&of_rank);
    }
    if let Some(times) = &mut job.times {
        times.add_waits(&waits);
    }
    Ok(job)
}

fn write_text(report: &Report) -> Result<(), PublishError> {
    let path = PathBuf::from("standard error");
    let written = io::stderr().write_all(report.to_string().as_bytes());
    Ok(written.map_err(|problem| WriteError { path, problem })?)
}
