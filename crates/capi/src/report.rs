//! What became of a context's collectives, for people: the report of the preload library, with the counts of
//! this process.
//!
//! Every operation is counted at rank 0 of its communicator. The out-of-band callbacks are gone when a
//! context ends, so each process that has counted adds its part to the file by itself.

use std::io::{self, Write};
use std::path::Path;

use tributary_client::knobs;
use tributary_client::report::{Report, add_to_file};

use crate::context::Context;
use crate::failure::{Code, Failure};

/// Writes a context's report to standard error.
pub(crate) fn dump(context: &Context) -> Result<(), Failure> {
    let text = report(context).to_string();
    let written = io::stderr().write_all(text.as_bytes());
    written.map_err(|error| Failure::new(Code::Error, format!("standard error: {error}")))
}

/// The same when the context ends, where this process has counted anything.
pub(crate) fn dump_counts(context: &Context) -> Result<(), Failure> {
    if report(context).communicators.is_empty() { Ok(()) } else { dump(context) }
}

/// Writes it where the environment says, if it says so.
pub(crate) fn publish(context: &Context) -> Result<(), Failure> {
    let path = knob(&knobs::REPORT);
    let report = report(context);
    if path.is_empty() || (report.communicators.is_empty() && report.jobs == 0) {
        return Ok(());
    }
    if path == "-" {
        return dump_counts(context);
    }
    let added = add_to_file(Path::new(&path), &report);
    added.map_err(|error| Failure::new(Code::Error, error.to_string()))
}

/// This process's part: one of them stands for the job.
fn report(context: &Context) -> Report {
    let run_id = Some(knob(&knobs::RUN_ID)).filter(|id| !id.is_empty());
    let run_id = run_id.unwrap_or_else(|| format!("sharp-{:x}", context.job_id));
    let jobs = u64::from(context.world_rank == 0);
    Report { run_id, jobs, ..context.counters.report() }
}

fn knob(knob: &'static knobs::Knob) -> String {
    knob.value(|name| std::env::var(name).ok()).value
}
