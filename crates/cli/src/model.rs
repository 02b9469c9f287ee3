//! `tributary model`: the cost model's predictions, beside measured times.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use serde_json::json;
use tributary_algorithms::model::{Costs, Design, Job};
use tributary_client::CollectiveKind;
use tributary_measuring::paths::LEADERS;
use tributary_tuning::Tuning;

use crate::bench::sizes;
use crate::flags::ModelFlags;
use crate::tune;
use crate::usage::UsageError;
use tributary_views::tables;

/// Bytes of an element of the measured vectors.
const FLOAT_BYTES: u64 = 4;
/// Most processes in one measurement on this machine.
const MEASURED_PROCESSES_MAX: u64 = 256;

/// One length with one number of leaders.
struct Row {
    len_bytes: u64,
    leaders: u32,
    predicted_us: f64,
    /// Of the fastest measured path without sub-partitions.
    measured_us: Option<f64>,
    /// The best number of sub-partitions by the model, and its prediction with them.
    sub_partitions: u32,
    pipelined_us: f64,
    recursive_doubling_us: f64,
    is_best: bool,
}

/// Prints predictions.
pub(crate) fn model(flags: ModelFlags) -> anyhow::Result<ExitCode> {
    let sizes = sizes::parse(&flags.sizes, if flags.measure { FLOAT_BYTES } else { 1 })?;
    let tuning = tuning(&flags)?;
    let costs = costs(&flags, &tuning)?;
    let rows: Vec<Row> =
        sizes.iter().flat_map(|bytes| rows(&flags, &costs, &tuning, *bytes)).collect();
    let mut out = io::stdout().lock();
    if flags.json {
        for row in &rows {
            writeln!(out, "{}", line(&flags, row))?;
        }
    } else {
        writeln!(out, "{}", head(&flags, &costs))?;
        writeln!(out, "{}", table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The measurements: of the file, or of now with `--measure`.
fn tuning(flags: &ModelFlags) -> anyhow::Result<Tuning> {
    let mut tuning = match flags.tuning.as_deref() {
        Some(file) => Tuning::read(file)?,
        None if flags.measure => tune::constants(IpAddr::V4(Ipv4Addr::LOCALHOST))?,
        None => Tuning::default(),
    };
    if flags.measure {
        check_measurable(flags)?;
        let (hosts, ppn) = (flags.hosts as u32, flags.ppn as u32);
        tuning.measurements = tune::by_leaders(hosts, ppn, &flags.sizes, flags.iters)?;
    }
    Ok(tuning)
}

/// Processes of this machine act as hosts in a measurement, so their number is limited.
fn check_measurable(flags: &ModelFlags) -> Result<(), UsageError> {
    let processes = flags.hosts.saturating_mul(flags.ppn);
    if flags.hosts >= 2 && processes <= MEASURED_PROCESSES_MAX {
        return Ok(());
    }
    let typed = format!("{} and --ppn {}", flags.hosts, flags.ppn);
    let allowed = format!(
        "with --measure, 2 hosts or more and at most {MEASURED_PROCESSES_MAX} processes are allowed"
    );
    Err(UsageError::new("--hosts", typed, allowed))
}

/// The constants: those of the command line, else those of the file.
fn costs(flags: &ModelFlags, tuning: &Tuning) -> Result<Costs, UsageError> {
    let measured = tuning.costs.map(Costs::from);
    let pick = |option: &str, typed: Option<f64>, of: fn(&Costs) -> f64| {
        typed.or_else(|| measured.as_ref().map(of)).ok_or_else(|| {
            let allowed = "needed, unless --tuning names a file of tributary tune";
            UsageError::new(option, "", allowed)
        })
    };
    Ok(Costs {
        network_startup_ns: pick("--network-startup-ns", flags.network_startup_ns, |costs| {
            costs.network_startup_ns
        })?,
        network_ns_per_byte: pick("--network-ns-per-byte", flags.network_ns_per_byte, |costs| {
            costs.network_ns_per_byte
        })?,
        memory_startup_ns: pick("--memory-startup-ns", flags.memory_startup_ns, |costs| {
            costs.memory_startup_ns
        })?,
        memory_ns_per_byte: pick("--memory-ns-per-byte", flags.memory_ns_per_byte, |costs| {
            costs.memory_ns_per_byte
        })?,
        reduce_ns_per_byte: pick("--reduce-ns-per-byte", flags.reduce_ns_per_byte, |costs| {
            costs.reduce_ns_per_byte
        })?,
    })
}

fn rows(flags: &ModelFlags, costs: &Costs, tuning: &Tuning, len_bytes: u64) -> Vec<Row> {
    let (hosts, ppn) = (flags.hosts as u32, flags.ppn as u32);
    let job = Job { processes: hosts.saturating_mul(ppn), hosts, len_bytes };
    let us = |ns: f64| ns / 1_000.0;
    let parts_max = flags.sub_partitions as u32;
    let mut rows: Vec<Row> = LEADERS
        .into_iter()
        .filter(|leaders| *leaders <= ppn)
        .map(|leaders| {
            let time_ns = |sub_partitions| {
                costs.predict(job, Design { leaders, sub_partitions }).overlapped_ns()
            };
            let sub_partitions = (0..11)
                .map(|exponent| 1 << exponent)
                .take_while(|parts| *parts <= parts_max)
                .min_by(|a, b| time_ns(*a).total_cmp(&time_ns(*b)))
                .unwrap_or(1);
            Row {
                len_bytes,
                leaders,
                predicted_us: us(time_ns(1)),
                measured_us: measured_us(tuning, job, leaders),
                sub_partitions,
                pipelined_us: us(time_ns(sub_partitions)),
                recursive_doubling_us: us(costs.recursive_doubling_ns(job)),
                is_best: false,
            }
        })
        .collect();
    let best = rows.iter_mut().min_by(|a, b| a.predicted_us.total_cmp(&b.predicted_us));
    best.expect("a host has at least one leader").is_best = true;
    rows
}

fn measured_us(tuning: &Tuning, job: Job, leaders: u32) -> Option<f64> {
    tuning
        .measurements
        .iter()
        .filter(|row| {
            row.collective == CollectiveKind::Allreduce
                && (row.hosts, row.ranks) == (job.hosts, job.processes)
                && (row.len_bytes, row.leaders) == (job.len_bytes, leaders)
                && row.sub_partitions == 1
        })
        .map(|row| row.time_us)
        .min_by(f64::total_cmp)
}

fn head(flags: &ModelFlags, costs: &Costs) -> String {
    format!(
        "{} hosts of {} processes; a {:.1} ns, b {:.4} ns/B, a' {:.1} ns, b' {:.4} ns/B, \
         c {:.4} ns/B",
        flags.hosts,
        flags.ppn,
        costs.network_startup_ns,
        costs.network_ns_per_byte,
        costs.memory_startup_ns,
        costs.memory_ns_per_byte,
        costs.reduce_ns_per_byte
    )
}

fn line(flags: &ModelFlags, row: &Row) -> serde_json::Value {
    json!({
        "hosts": flags.hosts,
        "ppn": flags.ppn,
        "size_bytes": row.len_bytes,
        "leaders": row.leaders,
        "predicted_us": row.predicted_us,
        "measured_us": row.measured_us,
        "sub_partitions": row.sub_partitions,
        "pipelined_us": row.pipelined_us,
        "recursive_doubling_us": row.recursive_doubling_us,
        "best": row.is_best,
    })
}

fn table(rows: &[Row]) -> String {
    let mut table = tables::plain([
        "bytes",
        "leaders",
        "predicted_us",
        "measured_us",
        "best_k",
        "pipelined_us",
        "doubling_us",
        "best",
    ]);
    for row in rows {
        table.add_row([
            row.len_bytes.to_string(),
            row.leaders.to_string(),
            format!("{:.2}", row.predicted_us),
            row.measured_us.map_or_else(|| "-".to_owned(), |time| format!("{time:.2}")),
            row.sub_partitions.to_string(),
            format!("{:.2}", row.pipelined_us),
            format!("{:.2}", row.recursive_doubling_us),
            if row.is_best { "*".to_owned() } else { String::new() },
        ]);
    }
    tables::right(&mut table, 0..7);
    tables::text(&table)
}
