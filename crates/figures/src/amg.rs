//! An application like AMG: 8-byte reductions between compute phases.

use super::full_hosts::setting;
use super::output::Figure;
use super::sweep::{Effort, FigureError, Progress, sweep};
use tributary_charts::{Axis, Chart, Quantity, Scale, Series};
use tributary_charts::{Cell, Table};
use tributary_sim::measure::InterHost;
use tributary_sim::preset;

/// Hosts and processes on each.
const SHAPE: (u32, u32) = (64, 28);

/// Computing time between two reductions, in microseconds: a cycle of the solver on coarse levels.
const PHASES_US: [f64; 5] = [5.0, 10.0, 20.0, 50.0, 100.0];

/// The figure of merit, in thousand reductions per second, with and without the tree. Every phase
/// computes, then waits for one 8-byte allreduce.
pub(super) fn amg(effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let preset = preset::read_shipped("edr-sharp")?;
    let settings = [
        ("hosts alone", 1, InterHost::HostBased),
        ("one channel a socket", 2, InterHost::Tree { multicast: true }),
    ];
    let means = sweep(&settings, progress, |&(_, leaders, inter_host)| {
        let (hosts, processes) = SHAPE;
        let setting = setting(hosts, processes, leaders, inter_host, effort);
        super::full_hosts::measure(&preset, &setting, 8, effort.operations)
    })?;
    let mut table = Table::new(&[
        "compute_us",
        "reduction_host_us",
        "reduction_tree_us",
        "merit_host",
        "merit_tree",
        "gain_percent",
    ]);
    let mut series = settings.map(|(name, ..)| Series::line(name)).to_vec();
    for phase in PHASES_US {
        let merit = |reduction: f64| 1e6 / ((phase + reduction) * 1e3);
        let (host, tree) = (merit(means[0]), merit(means[1]));
        series[0].points.push((phase, host));
        series[1].points.push((phase, tree));
        table.add(vec![
            Cell::Number(phase, 0),
            Cell::Number(means[0], 3),
            Cell::Number(means[1], 3),
            Cell::Number(host, 2),
            Cell::Number(tree, 2),
            Cell::Number((tree / host - 1.0) * 100.0, 1),
        ]);
    }
    let axis = |label: &str, shows| Axis { label: label.into(), scale: Scale::Logarithmic, shows };
    let chart = Chart {
        x: axis("computing between two reductions, microseconds", Quantity::Count),
        y: axis("figure of merit: thousand reductions a second", Quantity::Number),
        series,
    };
    let title = "AMG-like application, EDR fat tree, 64 hosts, 28 processes a host".to_owned();
    let note = format!("operations for the mean of a reduction: {}", effort.operations);
    Ok(Figure { name: "amg", title, table, chart, note })
}
