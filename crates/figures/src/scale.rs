//! Large fabrics of other kinds, on which the model was not calibrated.

use super::output::Figure;
use super::published;
use super::sweep::{Effort, FigureError, Progress, sweep};
use tributary_charts::{Axis, Chart, Quantity, Scale, Series};
use tributary_charts::{Cell, Table};
use tributary_sim::measure::TreeBenchmark;
use tributary_sim::preset;
use tributary_sim::system::SystemPlan;

/// Hosts of the published BlueGene/Q system.
const BLUEGENE_Q_HOSTS: u32 = 96_304;

/// The latency of an 8-byte allreduce without noise, over `hosts` hosts of a preset or all of them; and
/// how many hosts those are.
pub(super) fn short(name: &str, hosts: Option<u32>) -> Result<(u32, f64), FigureError> {
    let preset = preset::read_shipped(name)?;
    let all = SystemPlan::new(&preset)?.compute_hosts().len() as u32;
    let hosts = hosts.unwrap_or(all).min(all);
    Ok((hosts, TreeBenchmark::of_first(hosts).set_up(&preset)?.allreduce(8, 1)?.avg()))
}

pub(super) fn scale(_: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let points: Vec<(&str, Option<u32>)> = vec![
        ("bluegene-q", Some(1024)),
        ("bluegene-q", Some(16_384)),
        ("bluegene-q", Some(BLUEGENE_Q_HOSTS)),
        ("aries", Some(384)),
        ("aries", Some(6_144)),
        ("aries", None),
    ];
    let means = sweep(&points, progress, |&(name, hosts)| short(name, hosts))?;
    let mut table = Table::new(&["preset", "hosts", "simulated_us"]);
    let mut lines = vec![Series::line("bluegene-q"), Series::line("aries")];
    for (&(name, _), &(hosts, us)) in points.iter().zip(&means) {
        let line = lines.iter_mut().find(|line| line.name == name).expect("both have a line");
        line.points.push((hosts.into(), us));
        table.add(vec![
            Cell::Text(name.to_owned()),
            Cell::Whole(hosts.into()),
            Cell::Number(us, 3),
        ]);
    }
    let points = vec![(BLUEGENE_Q_HOSTS.into(), published::statement_value("S12"))];
    lines.push(Series::published("published, bluegene-q (S12)", 0, points));
    let axis = |label: &str, scale, shows| Axis { label: label.into(), scale, shows };
    let chart = Chart {
        x: axis("hosts", Scale::Logarithmic, Quantity::Count),
        y: axis("latency, microseconds", Scale::Linear, Quantity::Number),
        series: lines,
    };
    let title = "Large fabrics: 8-byte allreduce in the network, 1 process a host".to_owned();
    let note = "operations for each point: 1, without noise".to_owned();
    Ok(Figure { name: "scale", title, table, chart, note })
}
