//! Simultaneous communicators on the same hosts and the same tree.

use super::output::Figure;
use super::published;
use super::sweep::{Effort, FigureError, Progress, sweep};
use tributary_charts::{Cell, Table};
use tributary_charts::{Chart, Series};
use tributary_sim::measure::TreeBenchmark;
use tributary_sim::preset::{self, Preset};

const SIZES: [usize; 3] = [8, 64, 256];

const COMMUNICATORS: [u32; 5] = [1, 2, 4, 8, 16];

/// Length and communicators of the published statement.
const PUBLISHED: (usize, u32) = (64, 16);

/// The mean latency of `communicators` communicators that run at once on the same 128 hosts.
pub(crate) fn measure(
    preset: &Preset,
    communicators: u32,
    size_bytes: usize,
    effort: &Effort,
) -> Result<f64, FigureError> {
    let benchmark = TreeBenchmark {
        communicators,
        osos: 2,
        multicast: true,
        seed: Some(effort.seed),
        ..TreeBenchmark::of_first(128)
    };
    let operations = effort.operations.div_ceil(communicators);
    Ok(benchmark.set_up(preset)?.allreduce(size_bytes, operations)?.avg())
}

pub(super) fn communicators(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let preset = preset::read_shipped("edr-sharp")?;
    let points: Vec<_> =
        SIZES.into_iter().flat_map(|size| COMMUNICATORS.map(|count| (size, count))).collect();
    let means = sweep(&points, progress, |&(size, count)| measure(&preset, count, size, effort))?;
    let mut table = Table::new(&["size_bytes", "comms", "simulated_us", "rise_percent"]);
    let mut series: Vec<Series> = Vec::new();
    let mut alone = f64::NAN;
    for (&(size, count), &us) in points.iter().zip(&means) {
        if count == 1 {
            alone = us;
            series.push(Series::line(format!("{size} B")));
        }
        series.last_mut().expect("the first count is 1").points.push((f64::from(count), us));
        table.add(vec![
            Cell::Whole(size as u64),
            Cell::Whole(count.into()),
            Cell::Number(us, 3),
            Cell::Number((us / alone - 1.0) * 100.0, 1),
        ]);
    }
    let (size, count) = PUBLISHED;
    let alone = points.iter().position(|point| *point == (size, 1)).map(|place| means[place]);
    let rise = published::statement_value("S3");
    let at = alone.map(|us| (f64::from(count), us * (1.0 + rise / 100.0)));
    let name = format!("published, {size} B (S3)");
    let of = SIZES.iter().position(|it| *it == size).expect("it is simulated");
    series.push(Series::published(name, of, at.into_iter().collect()));
    let chart = Chart::latency_by_communicators(series);
    let title = "Overlapping communicators: MPI_Allreduce in the network, EDR fat tree, 128 hosts, 1 process a host each".to_owned();
    let note =
        format!("operations for each point: {}, which its communicators divide", effort.operations);
    Ok(Figure { name: "communicators", title, table, chart, note })
}
