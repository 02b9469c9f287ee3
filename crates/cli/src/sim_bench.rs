//! `tributary sim bench`: the speed of the simulator, beside its targets.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

use tributary_sim::measure::TreeBenchmark;
use tributary_sim::preset;

use crate::flags::SimBenchFlags;
use tributary_views::tables;

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

/// The target of the cost of an event on the largest fabric, in parts of that on the smallest.
const TARGET_GROWTH: f64 = 2.0;

/// The target of peak memory.
const TARGET_MIB: f64 = 4096.0;

/// What was measured on one fabric.
#[derive(Clone, Copy, Debug)]
struct Measured {
    set_up_ms: f64,
    best_ms: f64,
    /// Events of one operation.
    events: f64,
    peak_mib: f64,
}

impl Measured {
    fn ns_per_event(&self) -> f64 {
        self.best_ms * 1e6 / self.events
    }

    fn mevents_per_s(&self) -> f64 {
        self.events / self.best_ms / 1e3
    }
}

/// Times one 8-byte allreduce in the network on fabrics of growing size. Fails if a target is missed.
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
    let mut all = Vec::new();
    for case in CASES.iter().filter(|case| !flags.short || case.hosts <= 1024) {
        let measured = measure(case)?;
        table.add_row(row(case, &measured));
        all.push((case, measured));
    }
    tables::right(&mut table, 0..9);
    let mut out = io::stdout().lock();
    writeln!(out, "{}", tables::text(&table))?;
    writeln!(out, "best of several operations on one core")?;
    let missed = list_missed(&all);
    for line in &missed {
        writeln!(out, "missed: {line}")?;
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The targets that are missed, a line each.
fn list_missed(all: &[(&Case, Measured)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (Case { hosts, target_ms, .. }, measured) in all {
        let total_ms = measured.set_up_ms + measured.best_ms;
        // Large fabrics are simulated once, small ones many times after one set-up.
        let is_single = *target_ms >= 1e3;
        let (ms, what) = if is_single {
            (total_ms, "set-up and allreduce")
        } else {
            (measured.best_ms, "allreduce")
        };
        if ms > *target_ms {
            lines.push(format!("{hosts} hosts: {what} {ms:.2} ms, target {target_ms} ms"));
        }
        let rate = measured.mevents_per_s();
        if rate < TARGET_MEVENTS {
            lines.push(format!("{hosts} hosts: {rate:.1} M events/s, target {TARGET_MEVENTS}"));
        }
        if measured.peak_mib > TARGET_MIB {
            let peak = measured.peak_mib;
            lines.push(format!("{hosts} hosts: peak {peak:.0} MiB, target {TARGET_MIB}"));
        }
    }
    if let [(_, first), .., (Case { hosts, .. }, last)] = all {
        let growth = last.ns_per_event() / first.ns_per_event();
        if growth > TARGET_GROWTH {
            let target = format!("target {TARGET_GROWTH} times");
            lines
                .push(format!("{hosts} hosts: an event costs {growth:.1} times as much, {target}"));
        }
    }
    lines
}

fn measure(case: &Case) -> anyhow::Result<Measured> {
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
    Ok(Measured { set_up_ms, best_ms, events, peak_mib: peak_mib() })
}

fn row(case: &Case, measured: &Measured) -> Vec<String> {
    vec![
        case.hosts.to_string(),
        format!("{:.1}", measured.set_up_ms),
        format!("{:.4}", measured.best_ms),
        format!("{:.2}", case.target_ms),
        format!("{:.0}", measured.events),
        format!("{:.0}", measured.ns_per_event()),
        format!("{:.1}", measured.mevents_per_s()),
        format!("{TARGET_MEVENTS:.1}"),
        format!("{:.0}", measured.peak_mib),
    ]
}

/// Peak memory of this process, in MiB; 0 if the system does not say.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missed_target_is_named() {
        let good = |case: &Case| Measured {
            set_up_ms: 0.0,
            best_ms: case.target_ms / 2.0,
            events: case.target_ms / 2.0 * 1e3 * TARGET_MEVENTS,
            peak_mib: 1.0,
        };
        let all = || CASES.iter().map(|case| (case, good(case))).collect::<Vec<_>>();
        assert_eq!(list_missed(&all()), [""; 0]);
        let spoiled = |spoil: &dyn Fn(&mut Measured)| {
            let mut all = all();
            spoil(&mut all[2].1);
            list_missed(&all)
        };
        let set_up = "100000 hosts: set-up and allreduce 2500.00 ms, target 2000 ms";
        assert_eq!(spoiled(&|it| it.set_up_ms = 1500.0), [set_up]);
        assert_eq!(
            spoiled(&|it| it.events /= 2.5),
            [
                "100000 hosts: 2.0 M events/s, target 5",
                "100000 hosts: an event costs 2.5 times as much, target 2 times"
            ]
        );
        let peak = "100000 hosts: peak 5000 MiB, target 4096";
        assert_eq!(spoiled(&|it| it.peak_mib = 5000.0), [peak]);
    }
}
