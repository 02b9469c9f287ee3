//! Predictions for a user's own cluster: latencies, and a ranking of designs.

use crate::figure::{Cell, Effort, FigureError, Progress, Table, sweep};
use crate::measure::{FullHosts, InterHost};
use crate::preset::Preset;
use crate::system;

/// The workload to simulate on a cluster.
#[derive(Clone, Debug)]
pub struct Question {
    /// Hosts that take part; all by default.
    pub hosts: Option<u32>,
    /// Processes on each.
    pub processes: u32,
    /// Lengths of the vectors.
    pub sizes_bytes: Vec<usize>,
    /// Seed and operations.
    pub effort: Effort,
}

/// A design of an allreduce.
#[derive(Clone, Debug)]
struct Design {
    name: String,
    leaders: u32,
    inter_host: InterHost,
}

/// Mean, median and extremes of an allreduce: host-based and, if the preset has aggregation nodes, in
/// the tree.
///
/// # Errors
/// [`FigureError`].
pub fn run(
    preset: &Preset,
    question: &Question,
    progress: &Progress,
) -> Result<Table, FigureError> {
    let columns = ["design", "size_bytes", "avg_us", "min_us", "q1_us", "q2_us", "q3_us", "max_us"];
    let mut table = Table::new(&columns);
    let designs: Vec<Design> =
        designs(preset, question.processes).into_iter().filter(is_plain).collect();
    for (design, size, summary) in simulate(preset, question, &designs, progress)? {
        let mut row = vec![Cell::Text(design), Cell::Whole(size as u64)];
        row.push(Cell::Number(summary.avg, 3));
        row.extend(summary.processes.to_array().map(|us| Cell::Number(us, 3)));
        table.add(row);
    }
    Ok(table)
}

/// Every design by length, the fastest first.
///
/// # Errors
/// [`FigureError`].
pub fn compare(
    preset: &Preset,
    question: &Question,
    progress: &Progress,
) -> Result<Table, FigureError> {
    let mut table = Table::new(&["size_bytes", "rank", "design", "avg_us", "times_the_best"]);
    let designs = designs(preset, question.processes);
    let all = simulate(preset, question, &designs, progress)?;
    for &size in &question.sizes_bytes {
        let mut of_size: Vec<_> = all.iter().filter(|(_, of, _)| *of == size).collect();
        of_size.sort_by(|one, other| one.2.avg.total_cmp(&other.2.avg));
        let best = of_size.first().map_or(1.0, |first| first.2.avg);
        for (rank, (design, _, summary)) in (1..).zip(of_size) {
            table.add(vec![
                Cell::Whole(size as u64),
                Cell::Whole(rank),
                Cell::Text(design.clone()),
                Cell::Number(summary.avg, 3),
                Cell::Number(summary.avg / best, 2),
            ]);
        }
    }
    Ok(table)
}

fn simulate(
    preset: &Preset,
    question: &Question,
    designs: &[Design],
    progress: &Progress,
) -> Result<Vec<(String, usize, crate::measure::Summary)>, FigureError> {
    let wiring = system::wiring(&preset.fabric)?;
    let software_nodes = match &preset.aggregation {
        // Hosts that run aggregation nodes run no processes.
        Some(nodes) if nodes.on_hosts => system::Layout::regular(&wiring).vertices().count() as u32,
        _ => 0,
    };
    let hosts = question.hosts.unwrap_or(wiring.hosts() - software_nodes);
    let points: Vec<(&Design, usize)> = designs
        .iter()
        .flat_map(|design| question.sizes_bytes.iter().map(move |&size| (design, size)))
        .collect();
    sweep(&points, progress, |&(design, size)| {
        let setting = FullHosts {
            hosts,
            processes: question.processes,
            leaders: design.leaders,
            inter_host: design.inter_host,
            seed: Some(question.effort.seed),
        };
        let samples = setting.set_up(preset)?.allreduce(size, question.effort.operations)?;
        Ok((design.name.clone(), size, samples.summary()))
    })
}

/// Every design for this number of processes per host.
fn designs(preset: &Preset, processes: u32) -> Vec<Design> {
    let mut all = Vec::new();
    let leaders = [1, 2, 4, 8, 16].into_iter().filter(|&leaders| leaders <= processes);
    for leaders in leaders {
        let name = format!("hosts alone, {} a host", counted(leaders, "leader"));
        all.push(Design { name, leaders, inter_host: InterHost::HostBased });
    }
    let Some(nodes) = &preset.aggregation else { return all };
    let sockets = preset.memory.sockets.count();
    for leaders in [1, sockets].into_iter().filter(|&leaders| leaders <= processes) {
        for multicast in [false, true] {
            // An aggregation node on a host has no multicast in the switch.
            if multicast && nodes.on_hosts {
                continue;
            }
            let results = if multicast { "multicast and reliable" } else { "reliable" };
            let name = format!("tree, {} a host, {results} results", counted(leaders, "channel"));
            let design = Design { name, leaders, inter_host: InterHost::Tree { multicast } };
            if !all.iter().any(|known: &Design| known.name == design.name) {
                all.push(design);
            }
        }
    }
    all
}

/// `1 leader`, `2 leaders`.
fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn is_plain(design: &Design) -> bool {
    design.leaders == 1
}
