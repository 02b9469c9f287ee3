//! The published statements, each with the simulated value.

use super::full_hosts::{self, DPML_LEADERS, DPML_OPERATIONS, setting};
use super::latency::{beside, error_percent};
use super::output::{Compared, Figure};
use super::published::Statement;
use super::sweep::{Effort, FigureError, Progress, sweep};
use super::tables::Mode;
use super::{communicators, published, scale, streaming, tables};
use tributary_charts::{Axis, Chart, Mark, Quantity, Scale, Series};
use tributary_charts::{Cell, Table};
use tributary_sim::measure::InterHost;
use tributary_sim::preset;

const IN_TREE: InterHost = InterHost::Tree { multicast: true };

/// A simulated value for a statement.
struct Answer {
    value: f64,
    unit: &'static str,
    /// The published number: the only one, or the middle of a range.
    published: Option<f64>,
    /// Which of a statement's several numbers; empty if there is one.
    of: &'static str,
}

/// All statements, with the error of each.
pub(super) fn statements(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let known = published::statements();
    let answers = answers(&known, effort, progress)?;
    let mut names = Vec::new();
    let mut points = Vec::new();
    for (statement, answer) in &answers {
        let Some(published) = answer.published else { continue };
        names.push(match answer.of {
            "" => statement.id.to_owned(),
            of => format!("{} {of}", statement.id),
        });
        points.push((names.len() as f64, answer.value / published));
    }
    let even = (1..=names.len()).map(|place| (place as f64, 1.0)).collect();
    let axis = |label: &str, shows| Axis { label: label.into(), scale: Scale::Linear, shows };
    let chart = Chart {
        x: axis("statement (the table says which)", Quantity::Named(names)),
        y: axis("simulated, in parts of published", Quantity::Number),
        series: vec![
            Series::new("simulated", Mark::Dots, points),
            Series::published("published", 0, even),
        ],
    };
    let title = "Published statements beside the simulator's".to_owned();
    let Effort { operations, .. } = *effort;
    let note = format!(
        "operations for each number: {operations}; S2, S10, S11: {}; S3: {operations}, which its \
         communicators divide; S8, S9: {DPML_OPERATIONS}; S6, S7: {}; S12: 1, without noise",
        operations.div_ceil(2),
        streaming::OPERATIONS
    );
    Ok(Figure { name: "statements", title, table: table(&answers), chart, note })
}

/// The statements with these ids.
pub(super) fn compare(
    ids: &[&str],
    effort: &Effort,
    progress: &Progress,
) -> Result<Compared, FigureError> {
    let mut known = published::statements();
    known.retain(|statement| ids.contains(&statement.id));
    let answers = answers(&known, effort, progress)?;
    let captions = answers.iter().map(|(statement, answer)| {
        let Answer { value, unit, published, of } = answer;
        let error = published.map(|known| error_percent(*value, known));
        let error = error.map_or(String::new(), |error| format!(" ({error:+.1} %)"));
        let of = if of.is_empty() { String::new() } else { format!(", {of}") };
        let Statement { id, source, value: published, .. } = statement;
        format!("{id}{of}: published {published} ({source}); simulated {value:.2} {unit}{error}")
    });
    Ok(Compared { captions: captions.collect(), table: table(&answers) })
}

/// Every answer to every statement, on all cores.
fn answers<'a>(
    known: &'a [Statement],
    effort: &Effort,
    progress: &Progress,
) -> Result<Vec<(&'a Statement, Answer)>, FigureError> {
    let answers = sweep(known, progress, |statement| answer(statement.id, effort))?;
    let beside = known.iter().zip(answers);
    Ok(beside.flat_map(|(of, answers)| answers.into_iter().map(move |one| (of, one))).collect())
}

fn table(answers: &[(&Statement, Answer)]) -> Table {
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
    for (statement, answer) in answers {
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
    table
}

fn answer(id: &str, effort: &Effort) -> Result<Vec<Answer>, FigureError> {
    let one = |value, unit| {
        let published = Some(published::statement_value(id));
        Ok(vec![Answer { value, unit, published, of: "" }])
    };
    // 16 hosts with the MPI library of the multi-leader study.
    let library = |processes, leaders, inter_host| {
        full("edr-leaders", (16, processes), leaders, inter_host, effort)
    };
    match id {
        "S1" => {
            let (fast, slow) =
                (table1(Mode::Sharp, 8, effort)?, table1(Mode::SharpReliable, 8, effort)?);
            one((1.0 - fast / slow) * 100.0, "percent lower")
        }
        "S2" => {
            let host = full("edr-sharp", (128, 28), 1, IN_TREE, effort)?;
            let socket = full("edr-sharp", (128, 28), 2, IN_TREE, effort)?;
            one((1.0 - socket / host) * 100.0, "percent lower")
        }
        "S3" => {
            let preset = preset::read_shipped("edr-sharp")?;
            let alone = communicators::measure(&preset, 1, 64, effort)?;
            let many = communicators::measure(&preset, 16, 64, effort)?;
            one((many / alone - 1.0) * 100.0, "percent higher")
        }
        "S4" => pair(id, 8, effort),
        "S5" => pair(id, 4096, effort),
        "S6" | "S7" => stream(id, effort),
        "S8" => {
            let one_leader = dpml(1, 512 << 10, effort)?;
            one(one_leader / dpml(16, 512 << 10, effort)?, "times faster")
        }
        "S9" => {
            let mut best = (f64::MAX, 0);
            for leaders in DPML_LEADERS {
                let us = dpml(leaders, 8 << 10, effort)?;
                if us < best.0 {
                    best = (us, leaders);
                }
            }
            one(f64::from(best.1), "leaders")
        }
        "S10" => {
            let (host, tree) = (library(1, 1, InterHost::HostBased)?, library(1, 1, IN_TREE)?);
            one(host / tree, "times faster")
        }
        "S11" => {
            let (host, tree) = (library(28, 1, InterHost::HostBased)?, library(28, 2, IN_TREE)?);
            one((host / tree - 1.0) * 100.0, "percent faster")
        }
        "S12" => one(scale::short("bluegene-q", Some(96_304))?.1, "us"),
        _ => Ok(Vec::new()),
    }
}

fn table1(mode: Mode, size_bytes: usize, effort: &Effort) -> Result<f64, FigureError> {
    let preset = preset::read_shipped("edr-sharp")?;
    Ok(tables::measure(&preset, mode, 128, size_bytes, effort)?.avg)
}

/// Host-based, then in-network with reliable results only, as published before multicast existed.
fn pair(id: &str, size_bytes: usize, effort: &Effort) -> Result<Vec<Answer>, FigureError> {
    [(Mode::Host, "hosts"), (Mode::SharpReliable, "tree")]
        .into_iter()
        .zip(published::statement_numbers(id))
        .map(|((mode, of), us)| {
            let value = table1(mode, size_bytes, effort)?;
            Ok(Answer { value, unit: "us", published: Some(us), of })
        })
        .collect()
}

fn stream(id: &str, effort: &Effort) -> Result<Vec<Answer>, FigureError> {
    const LONG_BYTES: usize = 64 << 20;
    let preset = preset::read_shipped("hdr-streaming")?;
    if id == "S6" {
        let us = streaming::stream(&preset, 32, LONG_BYTES, effort)?;
        let share = LONG_BYTES as f64 * preset.access.rate.byte_ps() / 1e6 / us * 100.0;
        let unit = "percent of the rate";
        let published = Some(published::statement_value(id));
        return Ok(vec![Answer { value: share, unit, published, of: "" }]);
    }
    let mut best: f64 = 0.0;
    for size in [64 << 10, 1 << 20, 4 << 20] {
        let alone = setting(32, 1, 1, InterHost::HostBased, effort);
        let host = full_hosts::measure(&preset, &alone, size, streaming::OPERATIONS)?;
        best = best.max(host / streaming::stream(&preset, 32, size, effort)?);
    }
    let published = Some(published::statement_value(id));
    Ok(vec![Answer { value: best, unit: "times faster", published, of: "" }])
}

/// The latency of 8 bytes on full hosts of a preset.
fn full(
    preset: &str,
    (hosts, processes): (u32, u32),
    leaders: u32,
    inter_host: InterHost,
    effort: &Effort,
) -> Result<f64, FigureError> {
    let preset = preset::read_shipped(preset)?;
    let setting = setting(hosts, processes, leaders, inter_host, effort);
    full_hosts::measure(&preset, &setting, 8, effort.operations.div_ceil(2))
}

fn dpml(leaders: u32, size_bytes: usize, effort: &Effort) -> Result<f64, FigureError> {
    let setting = setting(64, 28, leaders, InterHost::Dpml, effort);
    full_hosts::measure(&preset::read_shipped("edr")?, &setting, size_bytes, DPML_OPERATIONS)
}
