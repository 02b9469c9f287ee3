//! Large fabrics of other kinds: does the model hold where nobody calibrated it?

use super::{Cell, Effort, Figure, FigureError, Progress, Table, sweep};
use crate::fabric::Vertex;
use crate::measure::TreeBenchmark;
use crate::preset;
use crate::system;

/// The mean of a short allreduce over every host of a preset, without noise.
pub(super) fn short(name: &str, hosts: Option<u32>) -> Result<(u32, f64), FigureError> {
    let preset = preset::shipped(name)?;
    let all = system::wiring(&preset.fabric)?.hosts();
    let hosts = hosts.unwrap_or(all).min(all);
    let benchmark = TreeBenchmark {
        hosts: (0..hosts).map(Vertex).collect(),
        communicators: 1,
        osos: 1,
        osos_per_job: None,
        multicast: false,
        seed: None,
    };
    Ok((hosts, benchmark.set_up(&preset)?.allreduce(8, 1)?.avg()))
}

pub(super) fn scale(_: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let points: Vec<(&str, Option<u32>)> = vec![
        ("bluegene-q", Some(1024)),
        ("bluegene-q", Some(16_384)),
        ("bluegene-q", Some(96_304)),
        ("aries", Some(384)),
        ("aries", Some(6_144)),
        ("aries", None),
    ];
    let means = sweep(&points, progress, |&(name, hosts)| short(name, hosts))?;
    let mut table = Table::new(&["preset", "hosts", "simulated_us"]);
    for (&(name, _), &(hosts, us)) in points.iter().zip(&means) {
        table.add(vec![
            Cell::Text(name.to_owned()),
            Cell::Whole(hosts.into()),
            Cell::Number(us, 3),
        ]);
    }
    let title = "8-byte allreduce in the network on large fabrics".to_owned();
    Ok(Figure { name: "scale", title, table, chart: None })
}
