//! Simultaneous communicators on the same hosts and the same tree.

use super::chart::{Chart, Mark, Series};
use super::output::Figure;
use super::sweep::{Effort, FigureError, Progress, sweep};
use super::table::{Cell, Table};
use crate::fabric::Vertex;
use crate::measure::TreeBenchmark;
use crate::preset::{self, Preset};

const SIZES: [usize; 3] = [8, 64, 256];

const COMMUNICATORS: [u32; 5] = [1, 2, 4, 8, 16];

/// The mean latency of `communicators` communicators that run at once on the same 128 hosts.
pub(crate) fn measure(
    preset: &Preset,
    communicators: u32,
    size_bytes: usize,
    effort: &Effort,
) -> Result<f64, FigureError> {
    let benchmark = TreeBenchmark {
        hosts: (0..128).map(Vertex).collect(),
        communicators,
        osos: 2,
        osos_per_job: None,
        multicast: true,
        seed: Some(effort.seed),
    };
    let operations = effort.operations.div_ceil(communicators);
    Ok(benchmark.set_up(preset)?.allreduce(size_bytes, operations)?.avg())
}

pub(super) fn communicators(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let preset = preset::shipped("edr-sharp")?;
    let points: Vec<_> =
        SIZES.into_iter().flat_map(|size| COMMUNICATORS.map(|count| (size, count))).collect();
    let means = sweep(&points, progress, |&(size, count)| measure(&preset, count, size, effort))?;
    let mut table = Table::new(&["size_bytes", "comms", "simulated_us", "rise_percent"]);
    let mut series: Vec<Series> = Vec::new();
    let mut alone = f64::NAN;
    for (&(size, count), &us) in points.iter().zip(&means) {
        if count == 1 {
            alone = us;
            series.push(Series { name: format!("{size} B"), points: Vec::new(), mark: Mark::Line });
        }
        series.last_mut().expect("the first count is 1").points.push((f64::from(count), us));
        table.add(vec![
            Cell::Whole(size as u64),
            Cell::Whole(count.into()),
            Cell::Number(us, 3),
            Cell::Number((us / alone - 1.0) * 100.0, 1),
        ]);
    }
    let chart = Chart::latency_by_communicators(series);
    let title = "Overlapping communicators: MPI_Allreduce in the network, EDR fat tree, 128 hosts, 1 process a host each".to_owned();
    Ok(Figure { name: "communicators", title, table, chart })
}
