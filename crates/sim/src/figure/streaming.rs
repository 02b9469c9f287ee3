//! Long vectors streamed through the tree in chunks, beside hosts alone.

use super::full_hosts::{measure, setting};
use super::{Cell, Chart, Effort, Figure, FigureError, Progress, Series, Table, sweep};
use crate::fabric::Vertex;
use crate::measure::{Between, TreeBenchmark};
use crate::preset::{self, Preset};

/// The shortest operation stands for the word that asks for the stream lock.
const WORD_BYTES: usize = 4;

/// Chunks in flight: enough for several round trips' worth of the link.
const WINDOW: u16 = 64;

/// The mean time of an allreduce streamed through the tree, in microseconds. The tree's stream lock
/// is asked for first: one word up to the root, and one down when it is this group's turn.
pub(super) fn stream(
    preset: &Preset,
    hosts: u32,
    size_bytes: usize,
    effort: &Effort,
) -> Result<f64, FigureError> {
    let benchmark = TreeBenchmark {
        hosts: (0..hosts).map(Vertex).collect(),
        communicators: 1,
        osos: WINDOW,
        osos_per_job: None,
        multicast: false,
        seed: Some(effort.seed),
    };
    let mut run = benchmark.set_up(preset)?;
    let asked = run.allreduce(WORD_BYTES, 2)?.avg();
    Ok(asked + run.allreduce(size_bytes, 2)?.avg())
}

/// Time by size and hosts, and the share of the link's rate that the stream reaches.
pub(super) fn streaming(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let preset = preset::shipped("hdr-streaming")?;
    let link_byte_us = preset.access.rate.byte_ps() / 1e6;
    let sizes = (12..=24).step_by(2).map(|power| 1_usize << power);
    let points: Vec<(u32, usize)> =
        sizes.flat_map(|size| [8, 32, 128].map(|hosts| (hosts, size))).collect();
    let times = sweep(&points, progress, |&(hosts, size)| {
        let alone = setting(hosts, 1, 1, Between::Hosts, effort);
        Ok((stream(&preset, hosts, size, effort)?, measure(&preset, &alone, size, 2)?))
    })?;
    let mut table = Table::new(&[
        "hosts",
        "size_bytes",
        "streamed_us",
        "host_us",
        "speedup",
        "link_share_percent",
    ]);
    let mut series: Vec<Series> = [8, 32, 128]
        .iter()
        .flat_map(|hosts| {
            [format!("streamed, {hosts} hosts"), format!("hosts alone, {hosts} hosts")]
        })
        .map(|name| Series { name, points: Vec::new(), is_published: false })
        .collect();
    for (index, (&(hosts, size), &(streamed, alone))) in points.iter().zip(&times).enumerate() {
        table.add(vec![
            Cell::Whole(hosts.into()),
            Cell::Whole(size as u64),
            Cell::Number(streamed, 2),
            Cell::Number(alone, 2),
            Cell::Number(alone / streamed, 2),
            Cell::Number(size as f64 * link_byte_us / streamed * 100.0, 1),
        ]);
        let line = 2 * (index % 3);
        series[line].points.push((size as f64, streamed));
        series[line + 1].points.push((size as f64, alone));
    }
    let chart = Chart::latency_by_size(series);
    let title =
        "Streaming aggregation: MPI_Allreduce, HDR-200 fat tree, 1 process a host".to_owned();
    Ok(Figure { name: "streaming", title, table, chart: Some(chart) })
}
