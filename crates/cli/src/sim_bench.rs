//! `tributary sim bench`: the speed of the simulator, beside its targets.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use tributary_sim::measure::TreeBenchmark;
use tributary_sim::preset;

use crate::flags::SimBenchFlags;
use crate::tables;

/// One fabric to time: its hosts and shape, the operations, and the target time of one.
struct Case {
    hosts: u32,
    shape: &'static str,
    operations: u32,
    target_ms: f64,
}

const CASES: [Case; 3] = [
    Case { hosts: 128, shape: "down = [16, 8]\nup = [1, 16]", operations: 400, target_ms: 0.15 },
    Case { hosts: 1024, shape: "down = [32, 32]\nup = [1, 32]", operations: 60, target_ms: 1.5 },
    Case {
        hosts: 100_000,
        shape: "down = [40, 50, 50]\nup = [1, 40, 40]",
        operations: 3,
        target_ms: 2000.0,
    },
];

/// The target of events a second, in millions.
const TARGET_MEVENTS: f64 = 5.0;

/// Times one 8-byte allreduce in the network on fabrics of growing size.
pub(crate) fn run(flags: &SimBenchFlags) -> anyhow::Result<ExitCode> {
    let mut table = tables::plain([
        "hosts",
        "set_up_ms",
        "allreduce_ms",
        "target_ms",
        "events",
        "ns_per_event",
        "mevents_per_s",
        "target",
        "peak_mib",
    ]);
    for case in CASES.iter().filter(|case| !flags.short || case.hosts <= 1024) {
        table.add_row(time(case)?);
    }
    tables::right(&mut table, 0..9);
    let mut out = io::stdout().lock();
    writeln!(out, "{}", tables::text(&table))?;
    writeln!(out, "best of several operations on one core; 100,000 hosts may use 4,096 MiB")?;
    Ok(ExitCode::SUCCESS)
}

fn time(case: &Case) -> anyhow::Result<Vec<String>> {
    let text = format!(
        "name = \"bench\"\nbase = \"edr-sharp\"\n[fabric]\nkind = \"fat-tree\"\n{}\n",
        case.shape
    );
    let benchmark = TreeBenchmark {
        hosts: (0..case.hosts).map(tributary_sim::fabric::Vertex).collect(),
        communicators: 1,
        osos: 1,
        osos_per_job: None,
        multicast: true,
        seed: None,
    };
    let started = Instant::now();
    let mut run = benchmark.set_up(&preset::read(&text)?)?;
    let set_up_ms = started.elapsed().as_secs_f64() * 1e3;
    let before = run.system().world.events();
    let mut best_ms = f64::MAX;
    for _ in 0..case.operations {
        let started = Instant::now();
        run.allreduce(8, 1)?;
        best_ms = best_ms.min(started.elapsed().as_secs_f64() * 1e3);
    }
    let events = (run.system().world.events() - before) as f64 / f64::from(case.operations);
    Ok(vec![
        case.hosts.to_string(),
        format!("{set_up_ms:.1}"),
        format!("{best_ms:.4}"),
        format!("{:.2}", case.target_ms),
        format!("{events:.0}"),
        format!("{:.0}", best_ms * 1e6 / events),
        format!("{:.1}", events / best_ms / 1e3),
        format!("{TARGET_MEVENTS:.1}"),
        format!("{:.0}", peak_mib()),
    ])
}

/// Peak memory of this process, in MiB; 0 if the system does not say.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
