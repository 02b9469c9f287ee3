//! Predictions for a user's own cluster: latencies, and a ranking of designs.

use tributary_algorithms::plan::Plan;
use tributary_algorithms::{GROUP_MEMBERS_MAX, Radices};
use tributary_charts::{Cell, Table};
use tributary_sim::input::Refused;
use tributary_sim::measure::{FullHosts, InterHost, Summary};
use tributary_sim::preset::{Datagrams, Preset, RunsIn};
use tributary_sim::system::{SystemError, SystemPlan};
use tributary_sim::world::SetupError;

use crate::sweep::{Effort, FigureError, Progress, sweep};

/// Longest vector that is simulated.
const SIZE_MAX_BYTES: usize = 1 << 30;

/// The workload to simulate on a cluster.
#[derive(Clone, Debug)]
pub struct Question {
    /// Hosts that take part; all that run no aggregation node by default.
    pub hosts: Option<u32>,
    /// Groups at once, each with processes of its own.
    pub groups: u32,
    /// Processes of a group on each.
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
        let groups_max = cores / self.processes;
        if self.groups == 0 || self.groups > groups_max {
            let allowed = format!("1 to {groups_max}, so that each process has a core");
            return Err(Refused::new("groups", self.groups, allowed));
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
    carrier: Carrier,
}

/// What carries and takes the segments of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Carrier {
    runs_in: RunsIn,
    /// Whether leaders bypass their hosts' network stacks.
    has_bypass: bool,
}

impl Carrier {
    /// Every one that the preset has prices for.
    fn all(preset: &Preset) -> Vec<Self> {
        let mut all = Vec::new();
        for runs_in in [RunsIn::Process, RunsIn::TrafficControl, RunsIn::Driver] {
            for has_bypass in [false, true] {
                let carrier = Self { runs_in, has_bypass };
                all.extend(carrier.of(preset).map(|_| carrier));
            }
        }
        all
    }

    /// The preset with its prices; none if it has none.
    fn of(self, preset: &Preset) -> Option<Preset> {
        let needs_host = self != Self::default();
        if needs_host && !preset.aggregation.as_ref().is_some_and(|nodes| nodes.on_hosts) {
            return None;
        }
        if self.runs_in != RunsIn::Process && preset.datagrams.is_none() {
            return None;
        }
        let preset = preset.with_segments_taken_in(self.runs_in)?;
        if self.has_bypass { preset.with_bypass() } else { Some(preset) }
    }

    /// What a design's name says of it.
    fn words(self) -> String {
        let place = match self.runs_in {
            RunsIn::Process => "",
            RunsIn::TrafficControl => ", in the kernel at traffic control",
            RunsIn::Driver => ", in the kernel's driver",
        };
        format!("{place}{}", if self.has_bypass { ", leaders by AF_XDP" } else { "" })
    }
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
    let columns =
        ["design", "size_bytes", "avg_us", "min_us", "q1_us", "q2_us", "q3_us", "max_us", "cause"];
    let mut table = Table::new(&columns);
    let designs = plain(designs(preset, question)?);
    for Point { design, size_bytes, result } in simulate(preset, question, &designs, progress)? {
        let mut row = vec![Cell::Text(design), Cell::Whole(size_bytes as u64)];
        match result {
            Ok(summary) => {
                row.push(Cell::Number(summary.avg, 3));
                row.extend(summary.processes.to_array().map(|us| Cell::Number(us, 3)));
                row.push(Cell::Empty);
            }
            Err(cause) => {
                row.extend([const { Cell::Refused }; 6]);
                row.push(Cell::Text(cause));
            }
        }
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
    let columns = ["size_bytes", "rank", "design", "avg_us", "times_the_best", "cause"];
    let mut table = Table::new(&columns);
    let designs = designs(preset, question)?;
    let all = simulate(preset, question, &designs, progress)?;
    for &size in &question.sizes_bytes {
        // What cannot be comes last.
        let avg_us = |point: &Point| point.result.as_ref().map_or(f64::INFINITY, |it| it.avg);
        let mut of_size: Vec<_> = all.iter().filter(|point| point.size_bytes == size).collect();
        of_size.sort_by(|one, other| avg_us(one).total_cmp(&avg_us(other)));
        let best_us = of_size.first().map_or(1.0, |first| avg_us(first));
        for (rank, point) in (1..).zip(of_size) {
            let design = Cell::Text(point.design.clone());
            let (size, avg_us) = (Cell::Whole(size as u64), avg_us(point));
            table.add(match &point.result {
                Ok(_) => {
                    let numbers = [Cell::Number(avg_us, 3), Cell::Number(avg_us / best_us, 2)];
                    let [avg, times] = numbers;
                    vec![size, Cell::Whole(rank), design, avg, times, Cell::Empty]
                }
                Err(cause) => {
                    let [rank, avg, times] = [const { Cell::Refused }; 3];
                    vec![size, rank, design, avg, times, Cell::Text(cause.clone())]
                }
            });
        }
    }
    Ok(table)
}

/// What was found for a design and a length.
struct Point {
    design: String,
    size_bytes: usize,
    /// Else why there is no such tree.
    result: Result<Summary, String>,
}

fn simulate(
    preset: &Preset,
    question: &Question,
    designs: &[Design],
    progress: &Progress,
) -> Result<Vec<Point>, FigureError> {
    let (plan, no_tree) = system(preset)?;
    let hosts = question.hosts_of(preset, &plan)?;
    let points: Vec<(&Design, usize)> = designs
        .iter()
        .flat_map(|design| question.sizes_bytes.iter().map(move |&size| (design, size)))
        .collect();
    sweep(&points, progress, |&(design, size_bytes)| {
        let is_tree = matches!(design.inter_host, InterHost::Tree { .. });
        let is_too_long = matches!(design.inter_host, InterHost::Replicated { .. })
            && preset.datagrams.as_ref().is_some_and(|it| size_bytes > it.segment_max.bytes());
        let result = match &no_tree {
            Some(cause) if is_tree => Err(cause.clone()),
            _ if is_too_long => Err("longer than a datagram".to_owned()),
            _ => match design.simulate(preset, plan.clone(), hosts, question, size_bytes) {
                Ok(summary) => Ok(summary),
                Err(FigureError::System(fault)) if is_tree && is_about_nodes(&fault) => {
                    Err(fault.to_string())
                }
                Err(fault) => return Err(fault),
            },
        };
        Ok(Point { design: design.name.clone(), size_bytes, result })
    })
}

/// The system, and why it has no tree if it can have none.
fn system(preset: &Preset) -> Result<(SystemPlan, Option<String>), FigureError> {
    match SystemPlan::new(preset) {
        Ok(plan) => Ok((plan, None)),
        Err(fault) if is_about_nodes(&fault) => {
            let alone = Preset { aggregation: None, ..preset.clone() };
            Ok((SystemPlan::new(&alone)?, Some(fault.to_string())))
        }
        Err(fault) => Err(fault.into()),
    }
}

/// Whether a system could be made without aggregation nodes. A defect of the simulation is not about them.
fn is_about_nodes(fault: &SystemError) -> bool {
    use SystemError::{NoHostForNode, NoSuchHost, NodeOnHost, Setup, TooFewHosts};
    match fault {
        Setup(fault) => !matches!(fault, SetupError::Run(_)),
        _ => matches!(
            fault,
            NoHostForNode { .. } | NoSuchHost { .. } | NodeOnHost { .. } | TooFewHosts { .. }
        ),
    }
}

impl Design {
    fn simulate(
        &self,
        preset: &Preset,
        plan: SystemPlan,
        hosts: u32,
        question: &Question,
        size_bytes: usize,
    ) -> Result<Summary, FigureError> {
        let setting = FullHosts {
            groups: question.groups,
            hosts,
            processes: question.processes,
            leaders: self.leaders,
            inter_host: self.inter_host,
            seed: Some(question.effort.seed),
        };
        let carried = match self.inter_host {
            InterHost::Tree { .. } => self.carrier.of(preset),
            InterHost::HostBased | InterHost::Dpml | InterHost::Replicated { .. } => None,
        };
        let mut run = setting.set_up_as(carried.as_ref().unwrap_or(preset), plan)?;
        Ok(run.allreduce(size_bytes, question.effort.operations)?.summary())
    }
}

/// Every design for this number of hosts and processes.
fn designs(preset: &Preset, question: &Question) -> Result<Vec<Design>, FigureError> {
    let processes = question.processes;
    let mut all = Vec::new();
    let leaders = [1, 2, 4, 8, 16].into_iter().filter(|&leaders| leaders <= processes);
    for leaders in leaders {
        let name = format!("hosts alone, {} a host", with_count(leaders, "leader"));
        let (inter_host, carrier) = (InterHost::HostBased, Carrier::default());
        all.push(Design { name, leaders, inter_host, carrier });
    }
    if let Some(datagrams) = &preset.datagrams {
        let hosts = question.hosts_of(preset, &system(preset)?.0)?;
        let mut divisions = Plan::divisions(hosts, GROUP_MEMBERS_MAX);
        divisions.sort_by_key(|radices| group_ns(preset, datagrams, radices) as u64);
        let carriers =
            [false, true].into_iter().filter(|multicast| datagrams.multicast || !multicast);
        for (multicast, radices) in
            carriers.flat_map(|it| divisions.iter().map(move |radices| (it, *radices)))
        {
            let by = if multicast { " by multicast" } else { "" };
            let name = format!("hosts alone, replicated groups of {radices}{by}");
            let inter_host = InterHost::Replicated { radices, multicast };
            all.push(Design { name, leaders: 1, inter_host, carrier: Carrier::default() });
        }
    }
    let Some(nodes) = &preset.aggregation else { return Ok(all) };
    let sockets = preset.memory.sockets.count();
    for leaders in [1, sockets].into_iter().filter(|&leaders| leaders <= processes) {
        for multicast in [false, true] {
            let by_address = preset.datagrams.as_ref().is_some_and(|terms| terms.multicast);
            // An aggregator on a host needs a network that carries its results to an address.
            if multicast && nodes.on_hosts && !by_address {
                continue;
            }
            let results = match (multicast, nodes.on_hosts) {
                (true, true) => "multicast",
                (true, false) => "multicast and reliable",
                (false, _) => "reliable",
            };
            for carrier in Carrier::all(preset) {
                let channels = with_count(leaders, "channel");
                let name = format!("tree, {channels} a host, {results} results{}", carrier.words());
                let inter_host = InterHost::Tree { multicast };
                let design = Design { name, leaders, inter_host, carrier };
                if !all.iter().any(|known: &Design| known.name == design.name) {
                    all.push(design);
                }
            }
        }
    }
    Ok(all)
}

/// `1 leader`, `2 leaders`.
fn with_count(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// About what a short operation takes by groups in levels of these radices: crossings, and datagrams to all others of a group.
fn group_ns(preset: &Preset, datagrams: &Datagrams, radices: &Radices) -> f64 {
    let (software, adapter) = (&preset.software, &preset.adapter);
    let at_ends = software.send.value() + software.receive.value();
    let between = adapter.transmit.value()
        + adapter.receive.value()
        + 2.0 * preset.access.propagation.value()
        + preset.switch.port_to_port.value();
    let each = datagrams.further_send.value() + datagrams.each_receive.value();
    radices.iter().map(|members| at_ends + between + f64::from(members - 2) * each).sum()
}

/// Those of one leader a host and without bypasses; of replicated groups the first.
fn plain(designs: Vec<Design>) -> Vec<Design> {
    let is_by_groups = |design: &Design| matches!(design.inter_host, InterHost::Replicated { .. });
    let mut has_groups = false;
    let is_plain = |design: &Design| {
        let is_further = is_by_groups(design) && std::mem::replace(&mut has_groups, true);
        design.leaders == 1 && !design.carrier.has_bypass && !is_further
    };
    designs.into_iter().filter(is_plain).collect()
}
