//! Latency by length: host-based, in the network, and in the network with multicast.

use super::output::Figure;
use super::published;
use super::sweep::quartiles_note;
use super::sweep::{Effort, FigureError, Progress};
use super::tables::{Mode, table1_points};
use tributary_charts::{Cell, Table};
use tributary_charts::{Chart, Mark, Series};

/// The relative error of a simulated value, in percent.
pub(super) fn error_percent(simulated: f64, published: f64) -> f64 {
    (simulated / published - 1.0) * 100.0
}

/// Two cells for a simulated value: the published value and the error, if a value was published.
pub(super) fn beside(simulated: f64, published: Option<f64>) -> [Cell; 2] {
    match published {
        Some(known) => [Cell::Number(known, 3), Cell::Number(error_percent(simulated, known), 1)],
        None => [Cell::Empty, Cell::Empty],
    }
}

pub(super) fn latency(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let points = table1_points(effort, progress)?;
    let mut table = Table::new(&[
        "mode",
        "size_bytes",
        "simulated_us",
        "q1_us",
        "median_us",
        "q3_us",
        "published_us",
        "error_percent",
    ]);
    let mut series = Vec::new();
    let mut known = Vec::new();
    for (of, mode) in Mode::ALL.into_iter().enumerate() {
        let mut known_of_mode = Vec::new();
        let mut line = Vec::new();
        let mut bars = Vec::new();
        for &(_, size, summary) in points.iter().filter(|(of, _, _)| *of == mode) {
            let published = published::table1(mode.name(), size);
            let mut row = vec![
                Cell::Text(mode.name().to_owned()),
                Cell::Whole(size as u64),
                Cell::Number(summary.avg, 3),
            ];
            let [_, q1, median, q3, _] = summary.processes.to_array();
            row.extend([q1, median, q3].map(|us| Cell::Number(us, 3)));
            bars.push((size as f64, q1, q3));
            row.extend(beside(summary.avg, published));
            table.add(row);
            line.push((size as f64, summary.avg));
            known_of_mode.extend(published.map(|us| (size as f64, us)));
        }
        let name = if of == 0 { "published (table 1)" } else { "" };
        known.push(Series::published(name, of, known_of_mode));
        series.push(Series { bars, ..Series::new(mode.description(), Mark::Line, line) });
    }
    series.extend(known);
    // Each statement has two numbers, of hosts alone and of the network.
    for (place, of) in [(0, Mode::Host), (1, Mode::SharpReliable)] {
        let known = [("S4", 8.0), ("S5", 4096.0)];
        let known = known.map(|(id, size)| (size, published::statement_numbers(id)[place]));
        let of = Mode::ALL.iter().position(|mode| *mode == of).expect("a mode");
        let name = if place == 0 { "published, 128 hosts (S4, S5)" } else { "" };
        series.push(Series::published(name, of, known.into()));
    }
    let chart = Chart::latency_by_size(series);
    let title =
        "MPI_Allreduce, EDR fat tree with in-network aggregation, 127 hosts, 1 process a host"
            .to_owned();
    let note = quartiles_note(effort.operations);
    Ok(Figure { name: "latency", title, table, chart, note })
}
