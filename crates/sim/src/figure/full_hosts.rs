//! Hosts with one process per core: channels into the tree, leaders, DPML.

use super::chart::{Chart, Mark, Series};
use super::output::Figure;
use super::sweep::{Effort, FigureError, Progress, sweep};
use super::table::{Cell, Table};
use crate::measure::{FullHosts, InterHost};
use crate::preset::{self, Preset};

/// The mean latency of an allreduce on full hosts.
pub(crate) fn measure(
    preset: &Preset,
    setting: &FullHosts,
    size_bytes: usize,
    operations: u32,
) -> Result<f64, FigureError> {
    Ok(setting.set_up(preset)?.allreduce(size_bytes, operations)?.avg())
}

const IN_TREE: InterHost = InterHost::Tree { multicast: true };

/// A setting of the given shape.
pub(crate) fn setting(
    hosts: u32,
    processes: u32,
    leaders: u32,
    inter_host: InterHost,
    effort: &Effort,
) -> FullHosts {
    FullHosts { hosts, processes, leaders, inter_host, seed: Some(effort.seed) }
}

/// One line of a figure: its name, its preset and its setting.
struct Line {
    name: String,
    preset: Preset,
    setting: FullHosts,
}

/// Latency by length of several settings, as a table and lines.
fn by_size(
    figure: (&'static str, &str),
    lines: Vec<Line>,
    sizes: &[usize],
    operations: u32,
    progress: &Progress,
) -> Result<Figure, FigureError> {
    let points: Vec<(usize, usize)> =
        (0..lines.len()).flat_map(|line| sizes.iter().map(move |&size| (line, size))).collect();
    let means = sweep(&points, progress, |&(line, size)| {
        measure(&lines[line].preset, &lines[line].setting, size, operations)
    })?;
    let mut table = Table::new(&["setting", "size_bytes", "simulated_us"]);
    let mut series: Vec<Series> = lines
        .iter()
        .map(|line| Series { name: line.name.clone(), points: Vec::new(), mark: Mark::Line })
        .collect();
    for (&(line, size), &us) in points.iter().zip(&means) {
        let name = Cell::Text(lines[line].name.clone());
        table.add(vec![name, Cell::Whole(size as u64), Cell::Number(us, 3)]);
        series[line].points.push((size as f64, us));
    }
    let chart = Chart::latency_by_size(series);
    Ok(Figure { name: figure.0, title: figure.1.to_owned(), table, chart })
}

/// 28 processes per host: host-based, one channel per host, one per socket.
pub(super) fn channels(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let line = |name: &str, leaders, inter_host| {
        Ok::<_, FigureError>(Line {
            name: name.to_owned(),
            preset: preset::shipped("edr-sharp")?,
            setting: setting(128, 28, leaders, inter_host, effort),
        })
    };
    let lines = vec![
        line("hosts alone", 1, InterHost::HostBased)?,
        line("one channel a host", 1, IN_TREE)?,
        line("one channel a socket", 2, IN_TREE)?,
    ];
    let sizes: Vec<usize> = (2..=12).map(|power| 1 << power).collect();
    let title = "Channels: MPI_Allreduce, EDR fat tree, 128 hosts, 28 processes a host";
    by_size(("channels", title), lines, &sizes, effort.operations.div_ceil(4), progress)
}

/// Node-level and socket-level leaders into the tree, beside a host algorithm, on 16 hosts.
pub(super) fn leaders(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let mut lines = Vec::new();
    for processes in [1, 4, 28] {
        let kinds = [
            ("hosts alone", 1, InterHost::HostBased),
            ("node-level leader", 1, IN_TREE),
            ("socket-level leaders", 2, IN_TREE),
        ];
        for (name, leaders, inter_host) in kinds {
            lines.push(Line {
                name: format!("{name}, {processes} a host"),
                preset: preset::shipped("edr-leaders")?,
                setting: setting(16, processes, leaders, inter_host, effort),
            });
        }
    }
    let sizes: Vec<usize> = (2..=12).map(|power| 1 << power).collect();
    let title = "Leaders into the tree: MPI_Allreduce, EDR fat tree, 16 hosts";
    by_size(("leaders", title), lines, &sizes, effort.operations.div_ceil(4), progress)
}

/// Leaders per host, of DPML.
pub(super) const DPML_LEADERS: [u32; 5] = [1, 2, 4, 8, 16];

fn dpml_on(
    figure: (&'static str, &str),
    preset: &str,
    (hosts, processes): (u32, u32),
    effort: &Effort,
    progress: &Progress,
) -> Result<Figure, FigureError> {
    let lines = DPML_LEADERS.map(|leaders| {
        Ok::<_, FigureError>(Line {
            name: format!("{leaders} leader{}", if leaders == 1 { "" } else { "s" }),
            preset: preset::shipped(preset)?,
            setting: setting(hosts, processes, leaders, InterHost::Dpml, effort),
        })
    });
    let lines = lines.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sizes = [10, 11, 12, 13, 14, 16, 18, 19, 20].map(|power| 1_usize << power);
    by_size(figure, lines, &sizes, 3, progress)
}

/// DPML on EDR, 64 hosts of 28.
pub(super) fn dpml_edr(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let title = "DPML: MPI_Allreduce, EDR fat tree, 64 hosts, 28 processes a host";
    dpml_on(("dpml-edr", title), "edr", (64, 28), effort, progress)
}

/// DPML on Omni-Path, 64 hosts of 28.
pub(super) fn dpml_opa(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let title = "DPML: MPI_Allreduce, Omni-Path, 64 hosts, 28 processes a host";
    dpml_on(("dpml-omni-path", title), "omni-path", (64, 28), effort, progress)
}

/// DPML on many-core nodes, 10,240 processes.
pub(super) fn dpml_scale(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let title = "DPML: MPI_Allreduce, 160 many-core hosts, 64 processes a host (10,240)";
    dpml_on(("dpml-10240", title), "many-core", (160, 64), effort, progress)
}
