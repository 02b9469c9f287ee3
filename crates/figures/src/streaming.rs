//! Long vectors streamed through the tree in chunks, beside a host algorithm.

use tributary_algorithms::CollectiveKind;

use super::full_hosts::{measure, setting};
use super::output::Figure;
use super::published;
use super::sweep::{Effort, FigureError, Progress, sweep};
use tributary_charts::{Cell, Table};
use tributary_charts::{Chart, Series};
use tributary_sim::fabric::Vertex;
use tributary_sim::measure::{HostRun, InterHost, TreeBenchmark, choose_algorithm};
use tributary_sim::preset::{self, Preset};

/// Numbers of hosts.
const HOSTS: [u32; 3] = [8, 32, 128];

/// Chunks in flight: several times the bandwidth-delay product.
const WINDOW: u16 = 64;

/// Operations of each point: noise is small beside a long vector's time.
pub(super) const OPERATIONS: u32 = 2;

/// What is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Allreduce,
    Reduce,
}

/// The mean time of an allreduce streamed through the tree, in microseconds, from the request for the tree's
/// stream lock on.
pub(super) fn stream(
    preset: &Preset,
    hosts: u32,
    size_bytes: usize,
    effort: &Effort,
) -> Result<f64, FigureError> {
    stream_kind(Kind::Allreduce, preset, hosts, size_bytes, effort)
}

/// The same for either kind. A reduce ends when its root has the result.
fn stream_kind(
    kind: Kind,
    preset: &Preset,
    hosts: u32,
    size_bytes: usize,
    effort: &Effort,
) -> Result<f64, FigureError> {
    let benchmark = TreeBenchmark { seed: Some(effort.seed), ..TreeBenchmark::of_first(hosts) };
    let mut run = benchmark.set_up_streams(preset, WINDOW)?;
    let streamed = match kind {
        Kind::Allreduce => run.allreduce(size_bytes, OPERATIONS)?,
        Kind::Reduce => run.reduce(size_bytes, OPERATIONS)?,
    };
    Ok(streamed.avg())
}

/// The mean time of a host algorithm.
fn host_based(
    kind: Kind,
    preset: &Preset,
    hosts: u32,
    size_bytes: usize,
    effort: &Effort,
) -> Result<f64, FigureError> {
    if kind == Kind::Allreduce {
        let setting = setting(hosts, 1, 1, InterHost::HostBased, effort);
        return measure(preset, &setting, size_bytes, OPERATIONS);
    }
    let hosts: Vec<Vertex> = (0..hosts).map(Vertex).collect();
    let algorithm =
        choose_algorithm(preset, CollectiveKind::Reduce, size_bytes, hosts.len() as u32);
    let mut run = HostRun::set_up(preset, &hosts, algorithm, Some(effort.seed))?;
    Ok(run.reduce(size_bytes, OPERATIONS)?.avg())
}

/// Allreduce, by size and hosts.
pub(super) fn allreduce(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    by_size(Kind::Allreduce, ("streaming", "MPI_Allreduce"), effort, progress)
}

/// Reduce, by size and hosts.
pub(super) fn reduce(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    by_size(Kind::Reduce, ("streaming-reduce", "MPI_Reduce"), effort, progress)
}

/// Time by length and hosts, and the share of the link rate that the stream reaches.
fn by_size(
    kind: Kind,
    (name, call): (&'static str, &str),
    effort: &Effort,
    progress: &Progress,
) -> Result<Figure, FigureError> {
    let preset = preset::read_shipped("hdr-streaming")?;
    let link_byte_us = preset.access.rate.byte_ps() / 1e6;
    let sizes = (12..=24).step_by(2).map(|power| 1_usize << power);
    let points: Vec<(u32, usize)> =
        sizes.flat_map(|size| HOSTS.map(|hosts| (hosts, size))).collect();
    let times = sweep(&points, progress, |&(hosts, size)| {
        let streamed = stream_kind(kind, &preset, hosts, size, effort)?;
        Ok((streamed, host_based(kind, &preset, hosts, size, effort)?))
    })?;
    let columns =
        ["hosts", "size_bytes", "streamed_us", "host_us", "speedup", "link_share_percent"];
    let mut table = Table::new(&columns);
    let mut series = lines();
    for (index, (&(hosts, size), &(streamed, alone))) in points.iter().zip(&times).enumerate() {
        table.add(vec![
            Cell::Whole(hosts.into()),
            Cell::Whole(size as u64),
            Cell::Number(streamed, 2),
            Cell::Number(alone, 2),
            Cell::Number(alone / streamed, 2),
            Cell::Number(size as f64 * link_byte_us / streamed * 100.0, 1),
        ]);
        let line = 2 * (index % HOSTS.len());
        series[line].points.push((size as f64, streamed));
        series[line + 1].points.push((size as f64, alone));
    }
    if kind == Kind::Allreduce {
        let share = published::statement_value("S6");
        let longest = points.iter().map(|(_, size)| *size as f64).fold(0.0, f64::max);
        let at = (longest, longest * link_byte_us / share * 100.0);
        let of = HOSTS.iter().position(|hosts| *hosts == 32).expect("32 hosts are simulated");
        series.push(Series::published("published (S6)", 2 * of, vec![at]));
    }
    let chart = Chart::latency_by_size(series);
    let title = format!("Streaming aggregation: {call}, HDR-200 fat tree, 1 process a host");
    let note = format!("operations for each point: {OPERATIONS}");
    Ok(Figure { name, title, table, chart, note })
}

/// Two empty series for each number of hosts.
fn lines() -> Vec<Series> {
    let both = |hosts| [format!("streamed, {hosts} hosts"), format!("hosts alone, {hosts} hosts")];
    HOSTS.into_iter().flat_map(both).map(Series::line).collect()
}
