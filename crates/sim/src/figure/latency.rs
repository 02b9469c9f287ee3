//! Latency by length: host-based, in the network, and in the network with multicast.

use super::chart::{Chart, Mark, Series};
use super::output::Figure;
use super::published;
use super::sweep::{Effort, FigureError, Progress};
use super::table::{Cell, Table};
use super::tables::{Mode, table1_points};

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
    let mut table =
        Table::new(&["mode", "size_bytes", "simulated_us", "published_us", "error_percent"]);
    let mut series = Vec::new();
    let mut known = Vec::new();
    for mode in Mode::ALL {
        let mut line = Vec::new();
        for &(_, size, summary) in points.iter().filter(|(of, _, _)| *of == mode) {
            let published = published::table1(mode.name(), size);
            let mut row = vec![
                Cell::Text(mode.name().to_owned()),
                Cell::Whole(size as u64),
                Cell::Number(summary.avg, 3),
            ];
            row.extend(beside(summary.avg, published));
            table.add(row);
            line.push((size as f64, summary.avg));
            known.extend(published.map(|us| (size as f64, us)));
        }
        let name = mode.description().to_owned();
        series.push(Series { name, points: line, mark: Mark::Line });
    }
    series.push(Series { name: "published".into(), points: known, mark: Mark::Published });
    let chart = Chart::latency_by_size(series);
    let title =
        "MPI_Allreduce, EDR fat tree with in-network aggregation, 127 hosts, 1 process a host"
            .to_owned();
    Ok(Figure { name: "latency", title, table, chart })
}
