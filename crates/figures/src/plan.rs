//! Predictions for a user's own cluster: latencies, and a ranking of designs.

use tributary_charts::{Cell, Table};
use tributary_sim::input::Refused;
use tributary_sim::measure::{FullHosts, InterHost};
use tributary_sim::preset::Preset;
use tributary_sim::system::SystemPlan;

use crate::sweep::{Effort, FigureError, Progress, sweep};

/// Longest vector that is simulated.
const SIZE_MAX_BYTES: usize = 1 << 30;

/// The workload to simulate on a cluster.
#[derive(Clone, Debug)]
pub struct Question {
    /// Hosts that take part; all that run no aggregation node by default.
    pub hosts: Option<u32>,
    /// Processes on each.
    pub processes: u32,
    /// Lengths of the vectors.
    pub sizes_bytes: Vec<usize>,
    /// Seed and operations.
    pub effort: Effort,
}

impl Question {
    /// The number of hosts that take part.
    ///
    /// # Errors
    /// [`Refused`], if the system that `preset` and `plan` describe can't answer this question. The key is
    /// the name of a field.
    pub fn hosts_of(&self, preset: &Preset, plan: &SystemPlan) -> Result<u32, Refused> {
        let has = plan.compute_hosts().len() as u32;
        let hosts = self.hosts.unwrap_or(has);
        if hosts == 0 || hosts > has {
            let allowed =
                format!("1 to {has}, the hosts of `{}` without an aggregation node", preset.name);
            return Err(Refused::new("hosts", hosts, allowed));
        }
        let cores = preset.memory.sockets.count() * preset.memory.cores.count();
        if self.processes == 0 || self.processes > cores {
            let allowed = format!("1 to {cores}, the cores of a host of `{}`", preset.name);
            return Err(Refused::new("processes", self.processes, allowed));
        }
        let is_wrong = |size: &&usize| **size == 0 || **size > SIZE_MAX_BYTES;
        if let Some(size) = self.sizes_bytes.iter().find(is_wrong) {
            return Err(Refused::new("sizes", size, format!("1 to {SIZE_MAX_BYTES} bytes")));
        }
        Ok(hosts)
    }
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
) -> Result<Vec<(String, usize, tributary_sim::measure::Summary)>, FigureError> {
    let plan = SystemPlan::new(preset)?;
    let hosts = question.hosts_of(preset, &plan)?;
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
        let mut run = setting.set_up_as(preset, plan.clone())?;
        let samples = run.allreduce(size, question.effort.operations)?;
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
