//! The two published tables, in their published layout.

use super::full_hosts::setting;
use super::output::Figure;
use super::published;
use super::sweep::{Effort, FigureError, Progress, sweep};
use tributary_charts::{Cell, Table};
use tributary_charts::{Chart, Mark, Series};
use tributary_sim::measure::{InterHost, Summary, TreeBenchmark, is_refusal, spread_hosts};
use tributary_sim::preset::{self, Preset};

/// Hosts of table 1.
const HOSTS: u32 = 127;

/// Host-based, or how in-network results are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Host,
    Sharp,
    SharpReliable,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::Host, Self::Sharp, Self::SharpReliable];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Sharp => "sharp",
            Self::SharpReliable => "sharp-rc",
        }
    }

    /// Its name in a legend.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Host => "host: hosts alone",
            Self::Sharp => "sharp: multicast + reliable",
            Self::SharpReliable => "sharp-rc: reliable only",
        }
    }
}

/// 4 B to 4 KiB.
pub(super) fn sizes() -> impl Iterator<Item = usize> {
    (2..=12).map(|power| 1 << power)
}

/// One row of table 1 on `hosts` neighbouring hosts.
pub(crate) fn measure(
    preset: &Preset,
    mode: Mode,
    hosts: u32,
    size_bytes: usize,
    effort: &Effort,
) -> Result<Summary, FigureError> {
    let inter_host = match mode {
        Mode::Host => InterHost::HostBased,
        Mode::Sharp => InterHost::Tree { multicast: true },
        Mode::SharpReliable => InterHost::Tree { multicast: false },
    };
    let setting = setting(hosts, 1, 1, inter_host, effort);
    Ok(setting.set_up(preset)?.allreduce(size_bytes, effort.operations)?.summary())
}

/// Every mode and size of table 1, with its summary.
pub(super) fn table1_points(
    effort: &Effort,
    progress: &Progress,
) -> Result<Vec<(Mode, usize, Summary)>, FigureError> {
    let preset = preset::read_shipped("edr-sharp")?;
    let points: Vec<(Mode, usize)> =
        Mode::ALL.into_iter().flat_map(|mode| sizes().map(move |size| (mode, size))).collect();
    sweep(&points, progress, |&(mode, size)| {
        Ok((mode, size, measure(&preset, mode, HOSTS, size, effort)?))
    })
}

/// Table 1: exactly the published columns.
pub(super) fn table1(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let mut table = Table::new(&[
        "mode",
        "size_bytes",
        "avg_us",
        "op_min",
        "op_q1",
        "op_q2",
        "op_q3",
        "op_max",
        "proc_min",
        "proc_q1",
        "proc_q2",
        "proc_q3",
        "proc_max",
    ]);
    let points = table1_points(effort, progress)?;
    let chart = Chart::latency_by_size(spreads(&points));
    for (mode, size, summary) in points {
        let head = [Cell::Text(mode.name().to_owned()), Cell::Whole(size as u64)];
        let numbers = [summary.avg]
            .into_iter()
            .chain(summary.operations.to_array())
            .chain(summary.processes.to_array());
        table.add(head.into_iter().chain(numbers.map(|us| Cell::Number(us, 3))).collect());
    }
    let title = format!("MPI_Allreduce, {HOSTS} hosts, 1 process a host, us");
    let note = format!("operations for each point: {}", effort.operations);
    Ok(Figure { name: "table1", title, table, chart, note })
}

/// For each mode, median and extremes over processes, by length.
fn spreads(points: &[(Mode, usize, Summary)]) -> Vec<Series> {
    let mut series = Vec::new();
    for mode in Mode::ALL {
        for (place, what) in [(0, "least"), (2, "median"), (4, "most")] {
            let of_mode = points.iter().filter(|(of, ..)| *of == mode);
            let points = of_mode
                .map(|(_, size, summary)| (*size as f64, summary.processes.to_array()[place]));
            let name = format!("{}: {what} of processes", mode.name());
            series.push(Series::new(name, Mark::Line, points.collect()));
        }
    }
    // The same three of each published distribution, among the five numbers of processes.
    let known = published::distributions();
    for (mode, of_mode) in Mode::ALL.into_iter().zip((0..).step_by(3)) {
        for (at, place) in [6, 8, 10].into_iter().enumerate() {
            let rows = known.iter().filter(|row| row.mode == mode.name());
            let values = rows.map(|row| (row.size_bytes as f64, row.statistics[place]));
            let name = if of_mode + at == 0 { "published: the same" } else { "" };
            series.push(Series::published(name, of_mode + at, values.collect()));
        }
    }
    series
}

/// Lengths, total outstanding operations, and those of each communicator.
const GRANTS: [(usize, u32, u16); 6] =
    [(8, 8, 1), (8, 16, 1), (8, 32, 2), (2048, 32, 2), (2048, 64, 4), (2048, 128, 8)];

const COMMUNICATORS: [u32; 4] = [1, 2, 4, 8];

/// The mean of a cell of table 2; none if the manager refuses a grant.
pub(crate) fn measure_grant(
    preset: &Preset,
    size_bytes: usize,
    osos_total: u32,
    osos: u16,
    communicators: u32,
    effort: &Effort,
) -> Result<Option<f64>, FigureError> {
    let all = match &preset.fabric {
        preset::FabricShape::FatTree { down, .. } => down.iter().product(),
        _ => 8,
    };
    let benchmark = TreeBenchmark {
        hosts: spread_hosts(8, all),
        communicators,
        osos,
        osos_per_job: Some(osos_total),
        multicast: true,
        seed: Some(effort.seed),
    };
    match benchmark.set_up_beside_world(preset) {
        Ok(mut run) => Ok(Some(run.allreduce(size_bytes, operations(effort))?.avg())),
        Err(error) if is_refusal(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Operations of each point of table 2: fewer processes than in table 1, so more operations for the same
/// confidence.
fn operations(effort: &Effort) -> u32 {
    effort.operations * 4
}

/// Table 2: exactly the published columns.
pub(super) fn table2(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let preset = preset::read_shipped("edr-sharp")?;
    let points: Vec<_> = GRANTS
        .into_iter()
        .flat_map(|grant| COMMUNICATORS.map(|communicators| (grant, communicators)))
        .collect();
    let means = sweep(&points, progress, |&((size, total, each), communicators)| {
        measure_grant(&preset, size, total, each, communicators, effort)
    })?;
    let columns = ["size_bytes", "total_osos", "osos_per_comm", "comms", "avg_us"];
    let mut table = Table::new(&columns);
    let mut series: Vec<Series> = Vec::new();
    for (&((size, total, each), communicators), mean) in points.iter().zip(&means) {
        let numbers = [size as u64, total.into(), each.into(), communicators.into()];
        let mean_cell = mean.map_or(Cell::Refused, |us| Cell::Number(us, 3));
        table.add(numbers.into_iter().map(Cell::Whole).chain([mean_cell]).collect());
        let name = format!("{size} B, {total} OSOs, {each} each");
        if series.last().is_none_or(|last| last.name != name) {
            series.push(Series::line(name));
        }
        let of_grant = series.last_mut().expect("just pushed");
        match mean {
            Some(us) => of_grant.points.push((f64::from(communicators), *us)),
            None => of_grant.missing.push(communicators.into()),
        }
    }
    for (of, (size, total, each)) in GRANTS.into_iter().enumerate() {
        let known = COMMUNICATORS.into_iter().filter_map(|count| {
            Some((f64::from(count), published::table2(size, total, each, count)?))
        });
        let name = if of == 0 { "published" } else { "" };
        series.push(Series::published(name, of, known.collect()));
    }
    let chart = Chart::latency_by_communicators(series);
    let title =
        "Outstanding operations (OSOs): MPI_Allreduce in the network, EDR fat tree, 8 processes"
            .to_owned();
    let note = format!("operations for each point: {}; NA: refused", operations(effort));
    Ok(Figure { name: "table2", title, table, chart, note })
}
