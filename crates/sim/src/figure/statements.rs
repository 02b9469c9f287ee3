//! The published statements, each with what the simulator says.

use super::full_hosts::{self, DPML_LEADERS, setting};
use super::latency::beside;
use super::tables::Mode;
use super::{Cell, Effort, Figure, FigureError, Progress, Table, communicators, published, scale};
use super::{streaming, sweep, tables};
use crate::measure::Between;
use crate::preset;

const IN_TREE: Between = Between::Tree { multicast: true };

/// What the simulator has for a statement: one number, and its unit.
struct Answer {
    value: f64,
    unit: &'static str,
    /// The published number, where the statement gives exactly one, or the middle of a range.
    published: Option<f64>,
}

pub(super) fn statements(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let known = published::statements();
    let answers = sweep(&known, progress, |statement| answer(statement.id, effort))?;
    let mut table = Table::new(&[
        "id",
        "source",
        "statement",
        "published",
        "simulated",
        "unit",
        "published_value",
        "error_percent",
    ]);
    for (statement, answers) in known.iter().zip(answers) {
        for answer in answers {
            let mut row = vec![
                Cell::Text(statement.id.to_owned()),
                Cell::Text(statement.source.to_owned()),
                Cell::Text(statement.statement.clone()),
                Cell::Text(statement.value.to_owned()),
                Cell::Number(answer.value, 2),
                Cell::Text(answer.unit.to_owned()),
            ];
            row.extend(beside(answer.value, answer.published));
            table.add(row);
        }
    }
    let title = "Published statements beside the simulator's".to_owned();
    Ok(Figure { name: "statements", title, table, chart: None })
}

fn answer(id: &str, effort: &Effort) -> Result<Vec<Answer>, FigureError> {
    let one = |value, unit, published| Ok(vec![Answer { value, unit, published }]);
    // 16 hosts with the MPI library that leaders were measured with.
    let library = |processes, leaders, between| {
        full("edr-leaders", (16, processes), leaders, between, effort)
    };
    match id {
        "S1" => {
            let (fast, slow) =
                (table1(Mode::Sharp, 8, effort)?, table1(Mode::SharpReliable, 8, effort)?);
            one((1.0 - fast / slow) * 100.0, "percent lower", Some(16.0))
        }
        "S2" => {
            let host = full("edr-sharp", (128, 28), 1, IN_TREE, effort)?;
            let socket = full("edr-sharp", (128, 28), 2, IN_TREE, effort)?;
            one((1.0 - socket / host) * 100.0, "percent lower", Some(17.0))
        }
        "S3" => {
            let preset = preset::shipped("edr-sharp")?;
            let alone = communicators::measure(&preset, 1, 64, effort)?;
            let many = communicators::measure(&preset, 16, 64, effort)?;
            one((many / alone - 1.0) * 100.0, "percent higher", Some(30.0))
        }
        "S4" => pair(8, [6.01, 2.83], effort),
        "S5" => pair(4096, [46.9, 14.5], effort),
        "S6" | "S7" => stream(id, effort),
        "S8" => {
            let one_leader = dpml(1, 512 << 10, effort)?;
            one(one_leader / dpml(16, 512 << 10, effort)?, "times faster", Some(4.9))
        }
        "S9" => {
            let mut best = (f64::MAX, 0);
            for leaders in DPML_LEADERS {
                let us = dpml(leaders, 8 << 10, effort)?;
                if us < best.0 {
                    best = (us, leaders);
                }
            }
            one(f64::from(best.1), "leaders", Some(4.0))
        }
        "S10" => {
            let (host, tree) = (library(1, 1, Between::Hosts)?, library(1, 1, IN_TREE)?);
            one(host / tree, "times faster", Some(2.5))
        }
        "S11" => {
            let (host, tree) = (library(28, 1, Between::Hosts)?, library(28, 2, IN_TREE)?);
            one((host / tree - 1.0) * 100.0, "percent faster", Some(73.0))
        }
        "S12" => one(scale::short("bluegene-q", Some(96_304))?.1, "us", Some(6.5)),
        _ => Ok(Vec::new()),
    }
}

fn table1(mode: Mode, size_bytes: usize, effort: &Effort) -> Result<f64, FigureError> {
    let preset = preset::shipped("edr-sharp")?;
    Ok(tables::measure(&preset, mode, 128, size_bytes, effort)?.avg)
}

/// Host-based, then in-network with reliable results, as measured before multicast was there.
fn pair(size_bytes: usize, known: [f64; 2], effort: &Effort) -> Result<Vec<Answer>, FigureError> {
    [Mode::Host, Mode::SharpReliable]
        .into_iter()
        .zip(known)
        .map(|(mode, us)| {
            let value = table1(mode, size_bytes, effort)?;
            Ok(Answer { value, unit: "us", published: Some(us) })
        })
        .collect()
}

fn stream(id: &str, effort: &Effort) -> Result<Vec<Answer>, FigureError> {
    const LONG_BYTES: usize = 64 << 20;
    let preset = preset::shipped("hdr-streaming")?;
    if id == "S6" {
        let us = streaming::stream(&preset, 32, LONG_BYTES, effort)?;
        let share = LONG_BYTES as f64 * preset.access.rate.byte_ps() / 1e6 / us * 100.0;
        return Ok(vec![Answer {
            value: share,
            unit: "percent of the rate",
            published: Some(95.0),
        }]);
    }
    let mut best: f64 = 0.0;
    for size in [64 << 10, 1 << 20, 4 << 20] {
        let alone = setting(32, 1, 1, Between::Hosts, effort);
        let host = full_hosts::measure(&preset, &alone, size, 2)?;
        best = best.max(host / streaming::stream(&preset, 32, size, effort)?);
    }
    Ok(vec![Answer { value: best, unit: "times faster", published: Some(3.95) }])
}

/// 8 bytes on full hosts of a preset.
fn full(
    preset: &str,
    (hosts, processes): (u32, u32),
    leaders: u32,
    between: Between,
    effort: &Effort,
) -> Result<f64, FigureError> {
    let preset = preset::shipped(preset)?;
    let setting = setting(hosts, processes, leaders, between, effort);
    full_hosts::measure(&preset, &setting, 8, effort.operations.div_ceil(2))
}

fn dpml(leaders: u32, size_bytes: usize, effort: &Effort) -> Result<f64, FigureError> {
    let setting = setting(64, 28, leaders, Between::Parts, effort);
    full_hosts::measure(&preset::shipped("edr")?, &setting, size_bytes, 3)
}
