//! Hosts with one process per core: channels into the tree, leaders, DPML.

use super::output::Figure;
use super::published;
use super::sweep::{Effort, FigureError, Progress, quartiles_note, sweep};
use tributary_charts::{Cell, Table};
use tributary_charts::{Chart, Series};
use tributary_sim::measure::{FullHosts, InterHost, Summary};
use tributary_sim::preset::{self, Preset};

/// The mean latency of an allreduce on full hosts.
pub(crate) fn measure(
    preset: &Preset,
    setting: &FullHosts,
    size_bytes: usize,
    operations: u32,
) -> Result<f64, FigureError> {
    Ok(summary(preset, setting, size_bytes, operations)?.avg)
}

fn summary(
    preset: &Preset,
    setting: &FullHosts,
    size_bytes: usize,
    operations: u32,
) -> Result<Summary, FigureError> {
    Ok(setting.set_up(preset)?.allreduce(size_bytes, operations)?.summary())
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
    FullHosts { groups: 1, hosts, processes, leaders, inter_host, seed: Some(effort.seed) }
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
    let summaries = sweep(&points, progress, |&(line, size)| {
        summary(&lines[line].preset, &lines[line].setting, size, operations)
    })?;
    let columns = ["setting", "size_bytes", "simulated_us", "q1_us", "median_us", "q3_us"];
    let mut table = Table::new(&columns);
    let mut series: Vec<Series> =
        lines.iter().map(|line| Series::line(line.name.as_str())).collect();
    for (&(line, size), summary) in points.iter().zip(&summaries) {
        let [_, q1, median, q3, _] = summary.processes.to_array();
        let mut row = vec![Cell::Text(lines[line].name.clone()), Cell::Whole(size as u64)];
        row.extend([summary.avg, q1, median, q3].map(|us| Cell::Number(us, 3)));
        table.add(row);
        series[line].points.push((size as f64, summary.avg));
        series[line].bars.push((size as f64, q1, q3));
    }
    let chart = Chart::latency_by_size(series);
    let note = quartiles_note(operations);
    Ok(Figure { name: figure.0, title: figure.1.to_owned(), table, chart, note })
}

/// Draws what a statement says of one line, the one at `of`, in parts of another: at `size`, the value of the line at `base`
/// times `factor`.
fn add_published(
    figure: &mut Figure,
    of: usize,
    (base, size, factor): (usize, usize, f64),
    name: &str,
) {
    let points = figure.chart.series[base].points.iter();
    let at = points.filter(|(x, _)| *x == size as f64).map(|(x, us)| (*x, us * factor));
    let published = Series::published(format!("published: {name}"), of, at.collect());
    figure.chart.series.push(published);
}

/// 28 processes per host: host-based, one channel per host, one per socket.
pub(super) fn channels(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let line = |name: &str, leaders, inter_host| {
        Ok::<_, FigureError>(Line {
            name: name.to_owned(),
            preset: preset::read_shipped("edr-sharp")?,
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
    let operations = effort.operations.div_ceil(4);
    let mut figure = by_size(("channels", title), lines, &sizes, operations, progress)?;
    let less = published::statement_value("S2");
    let name = format!("{less} % less (S2)");
    add_published(&mut figure, 2, (1, 8, 1.0 - less / 100.0), &name);
    Ok(figure)
}

/// One leader a host, and one a socket, into the tree, beside a host algorithm, on 16 hosts.
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
                preset: preset::read_shipped("edr-leaders")?,
                setting: setting(16, processes, leaders, inter_host, effort),
            });
        }
    }
    let sizes: Vec<usize> = (2..=12).map(|power| 1 << power).collect();
    let title = "Leaders into the tree: MPI_Allreduce, EDR fat tree, 16 hosts";
    let operations = effort.operations.div_ceil(4);
    let mut figure = by_size(("leaders", title), lines, &sizes, operations, progress)?;
    // The lines of 1 and of 28 processes a host each begin with hosts alone.
    let times = published::statement_value("S10");
    add_published(&mut figure, 1, (0, 8, 1.0 / times), "1 a host (S10)");
    let faster = published::statement_value("S11");
    add_published(&mut figure, 8, (6, 8, 1.0 / (1.0 + faster / 100.0)), "28 a host (S11)");
    Ok(figure)
}

/// Operations of each point of DPML, which takes long to simulate.
pub(super) const DPML_OPERATIONS: u32 = 3;

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
            preset: preset::read_shipped(preset)?,
            setting: setting(hosts, processes, leaders, InterHost::Dpml, effort),
        })
    });
    let lines = lines.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sizes = [10, 11, 12, 13, 14, 16, 18, 19, 20].map(|power| 1_usize << power);
    by_size(figure, lines, &sizes, DPML_OPERATIONS, progress)
}

/// DPML on EDR, 64 hosts of 28.
pub(super) fn dpml_edr(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let title = "DPML: MPI_Allreduce, EDR fat tree, 64 hosts, 28 processes a host";
    let mut figure = dpml_on(("dpml-edr", title), "edr", (64, 28), effort, progress)?;
    let times = published::statement_value("S8");
    add_published(&mut figure, 4, (0, 512 << 10, 1.0 / times), "16 leaders (S8)");
    Ok(figure)
}

/// DPML on Omni-Path, 64 hosts of 28.
pub(super) fn dpml_opa(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let title = "DPML: MPI_Allreduce, Omni-Path, 64 hosts, 28 processes a host";
    dpml_on(("dpml-omni-path", title), "omni-path", (64, 28), effort, progress)
}

/// DPML on many-core hosts, 10,240 processes.
pub(super) fn dpml_scale(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let title = "DPML: MPI_Allreduce, 160 many-core hosts, 64 processes a host (10,240)";
    dpml_on(("dpml-10240", title), "many-core", (160, 64), effort, progress)
}
