//! Distributions over operations and over processes, beside the published ones.

use super::latency::beside;
use super::output::Figure;
use super::published;
use super::sweep::{Effort, FigureError, Progress, sweep};
use super::tables::{Mode, measure};
use tributary_charts::{Axis, Chart, Mark, Quantity, Scale, Series};
use tributary_charts::{Cell, Table};
use tributary_sim::preset;

/// Hosts of the published table.
const HOSTS: u32 = 127;

/// Columns of a row after its mean: five numbers of operations, then five of processes.
const STATISTICS: [&str; 11] = [
    "avg", "op_min", "op_q1", "op_q2", "op_q3", "op_max", "proc_min", "proc_q1", "proc_q2",
    "proc_q3", "proc_max",
];

/// The boxes: their name, whether they are published, and the index of the first of their five statistics.
const BOXES: [(&str, bool, usize); 4] = [
    ("operations, simulated", false, 1),
    ("operations, published", true, 1),
    ("processes, simulated", false, 6),
    ("processes, published", true, 6),
];

/// Every row with a complete published distribution.
pub(super) fn distribution(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let preset = preset::read_shipped("edr-sharp")?;
    let known = published::distributions();
    let simulated = sweep(&known, progress, |row| {
        let mode = Mode::ALL.into_iter().find(|mode| mode.name() == row.mode);
        let mode = mode.expect("published modes are ours");
        let summary = measure(&preset, mode, HOSTS, row.size_bytes, effort)?;
        let (operations, processes) = (summary.operations, summary.processes);
        let numbers = [summary.avg].into_iter().chain(operations.to_array());
        Ok(numbers.chain(processes.to_array()).collect::<Vec<f64>>())
    })?;
    let columns =
        ["mode", "size_bytes", "statistic", "simulated_us", "published_us", "error_percent"];
    let mut table = Table::new(&columns);
    let mut series = BOXES.map(|(name, ..)| Series::new(name, Mark::Boxes, Vec::new()));
    let mut names = Vec::new();
    for (row, ours) in known.iter().zip(&simulated) {
        for ((statistic, &us), &theirs) in STATISTICS.iter().zip(ours).zip(&row.statistics) {
            let mut cells = vec![
                Cell::Text(row.mode.to_owned()),
                Cell::Whole(row.size_bytes as u64),
                Cell::Text((*statistic).to_owned()),
                Cell::Number(us, 3),
            ];
            cells.extend(beside(us, Some(theirs)));
            table.add(cells);
        }
        names.push(format!("{}, {} B", row.mode, row.size_bytes));
        for (index, (one, (_, is_published, first))) in series.iter_mut().zip(BOXES).enumerate() {
            let from = if is_published { &row.statistics } else { ours };
            // Four boxes side by side over each name.
            let place = names.len() as f64 + (index as f64 - 1.5) * 0.18;
            one.points.extend(from[first..first + 5].iter().map(|&us| (place, us)));
        }
    }
    let title = format!("Distributions: MPI_Allreduce, {HOSTS} hosts, 1 process a host");
    let note = format!("operations for each box: {}", effort.operations);
    Ok(Figure { name: "distribution", title, table, chart: chart(names, series.into()), note })
}

/// Boxes above the names of their rows.
fn chart(names: Vec<String>, series: Vec<Series>) -> Chart {
    Chart {
        x: Axis {
            label: "mode and length of the vector".into(),
            scale: Scale::Linear,
            shows: Quantity::Named(names),
        },
        y: Axis {
            label: "least, quartiles, most: microseconds".into(),
            scale: Scale::Logarithmic,
            shows: Quantity::Number,
        },
        series,
    }
}
