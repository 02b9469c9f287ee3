//! `tributary sim predict`: measures this machine, runs the benchmark on it, and has the simulator
//! predict what the benchmark took.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::json;
use tributary_client::AlgorithmChoice;
use tributary_client::knobs;
use tributary_client::tuning::{CostsRow, SystemCosts, Tuning, keep_to_cores};
use tributary_daemon::embedded::FabricOptions;
use tributary_sim::machine::Joint;
use tributary_sim::predict::{self, MeasuredConstant, Predicted, Timed};

use crate::flags::PredictFlags;
use crate::usage::UsageError;
use crate::{sim, tune};

/// The mesh's algorithm, the same in the benchmark and in the simulator.
const ALGORITHM: AlgorithmChoice = AlgorithmChoice::RecursiveDoubling;

/// Simulated operations behind each prediction.
const OPERATIONS: u32 = 300;

/// What of a benchmark's line is kept.
#[derive(Deserialize)]
struct BenchRow {
    algo: String,
    size_bytes: usize,
    op_median_us: f64,
}

/// Measures, runs and predicts.
pub(crate) fn predict(flags: &PredictFlags) -> anyhow::Result<ExitCode> {
    if let Some(size) = flags.sizes.iter().find(|size| !size.is_multiple_of(4)) {
        let allowed = "a multiple of 4, an element's length, is allowed";
        return Err(UsageError::new("--sizes", size.to_string(), allowed).into());
    }
    keep_to_cores(flags.cores.into())?;
    let Measured { tuning, timed } = measure(flags)?;
    let (Some(costs), Some(system), Some(barrier_ns)) =
        (tuning.costs, tuning.system, tuning.barrier_ns)
    else {
        bail!("the tuning file has no constants for the simulator: tributary tune --measure FILE");
    };
    let measured = predict::with_frame(&tuning.machine, constants(&costs, &system), barrier_ns)?;
    let text = predict::preset_text(&tuning.machine, &measured);
    let preset = predict::read(&text).context("the preset of this machine")?;
    if let Some(path) = &flags.preset {
        std::fs::write(path, &text).with_context(|| format!("file {}", path.display()))?;
    }
    let rows = predict::predict(&preset, &timed, OPERATIONS, flags.seed)?;
    write(&rows, flags.json)?;
    Ok(ExitCode::SUCCESS)
}

/// The machine's constants, and what operations took on it.
struct Measured {
    tuning: Tuning,
    timed: Vec<Timed>,
}

/// Medians of one row, by whether the ranks were joined by the mesh, how many there were, and the
/// vector's length.
type Medians = BTreeMap<(bool, u32, usize), Vec<f64>>;

/// Constants and benchmark in turn, over and over, so that a machine that is slower for a while is so
/// for both; of each the middle one.
fn measure(flags: &PredictFlags) -> anyhow::Result<Measured> {
    // What can be wrong with a file is said before anything is measured.
    let given = flags.tuning.as_ref().map(|path| Tuning::read(path)).transpose()?;
    let mut tunings = Vec::new();
    let mut medians = Medians::new();
    for _ in 0..flags.rounds {
        if given.is_none() {
            tunings.push(tune::constants(IpAddr::V4(Ipv4Addr::LOCALHOST))?);
        }
        time(flags, &mut medians)?;
    }
    let tuning = match given {
        Some(tuning) => tuning,
        None => Tuning::middle_constants(&tunings).context("no constants were measured")?,
    };
    Ok(Measured { tuning, timed: middle(medians)? })
}

/// What was measured, as the preset has it.
fn constants(costs: &CostsRow, system: &SystemCosts) -> Vec<MeasuredConstant> {
    let in_table = |table| move |(name, unit, value)| MeasuredConstant { table, name, unit, value };
    let machine = [
        ("cores", "1", f64::from(system.cores)),
        ("send", "ns", system.send_ns),
        ("send_byte", "ns/B", system.send_ns_per_byte),
        ("receive", "ns", system.receive_ns),
        ("receive_byte", "ns/B", system.receive_ns_per_byte),
        ("miss", "ns", system.miss_ns),
        ("remote", "ns", system.remote_ns),
        ("give_way", "ns", system.give_way_ns),
        ("switch", "ns", system.switch_ns),
        ("cold", "ns", system.cold_ns),
        ("crowd", "ns", system.crowd_ns),
        ("wait", "ns", system.wait_ns),
        ("wake", "ns", system.wake_ns),
        ("wake_idle", "ns", system.wake_idle_ns),
    ];
    let memory =
        [("copy", "ns/B", costs.memory_ns_per_byte), ("reduce", "ns/B", costs.reduce_ns_per_byte)];
    let machine = machine.into_iter().map(in_table("machine"));
    machine.chain(memory.into_iter().map(in_table("memory"))).collect()
}

/// Runs the benchmark once for each number of endpoints.
fn time(flags: &PredictFlags, medians: &mut Medians) -> anyhow::Result<()> {
    for &endpoints in &flags.endpoints {
        for row in bench(flags, endpoints)? {
            let key = (row.algo == "mesh", endpoints, row.size_bytes);
            medians.entry(key).or_default().push(row.op_median_us);
        }
    }
    Ok(())
}

/// The middle of each row's medians.
fn middle(medians: Medians) -> anyhow::Result<Vec<Timed>> {
    let algorithm = ALGORITHM.algorithm().context("the algorithm is no choice of its own")?;
    let leaves = FabricOptions::default().leaves;
    let timed = medians.into_iter().map(|((in_mesh, endpoints, len_bytes), mut times)| {
        times.sort_unstable_by(f64::total_cmp);
        let joint = if in_mesh { Joint::Mesh { algorithm } } else { Joint::Tree { leaves } };
        Timed { endpoints, joint, len_bytes, measured_us: times[times.len() / 2] }
    });
    Ok(timed.collect())
}

/// Runs this program's own benchmark, with what the simulator supposes.
fn bench(flags: &PredictFlags, endpoints: u32) -> anyhow::Result<Vec<BenchRow>> {
    let sizes: Vec<String> = flags.sizes.iter().map(u64::to_string).collect();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "allreduce", "--json", "--no-verify", "--algo", "tree,mesh"]);
    command.args(["--transport", "tcp", "--procs", &endpoints.to_string()]);
    command.args(["--sizes", &sizes.join(","), "--iters", &flags.iters.to_string()]);
    for knob in [&knobs::MANAGER, &knobs::OSOS, &knobs::PAYLOAD_MAX, &knobs::WAIT] {
        command.env_remove(knob.name);
    }
    command.env(knobs::TUNING.name, "").env(knobs::CHANNEL.name, "tcp");
    command.env(knobs::MESH_ALGORITHM.name, ALGORITHM.name());
    let ended = command.stderr(Stdio::inherit()).output().context("the benchmark")?;
    if !ended.status.success() {
        bail!("the benchmark of {endpoints} processes failed");
    }
    let text = String::from_utf8(ended.stdout).context("the benchmark's output")?;
    let rows =
        text.lines().map(|line| serde_json::from_str(line).context("the benchmark's output"));
    rows.collect()
}

fn write(rows: &[Predicted], json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        for row in rows {
            let line = json!({
                "way": predict::way(row.timed.joint),
                "endpoints": row.timed.endpoints,
                "size_bytes": row.timed.len_bytes,
                "measured_us": row.timed.measured_us,
                "predicted_us": row.predicted_us,
                "error_percent": row.error_percent(),
                "within_20_percent": row.is_close(),
            });
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    writeln!(out, "{}\n{}", sim::as_text(&predict::table(rows)), predict::verdict(rows))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_has_a_place_in_the_preset() {
        let costs = CostsRow {
            network_startup_ns: 1.0,
            network_ns_per_byte: 1.0,
            memory_startup_ns: 1.0,
            memory_ns_per_byte: 0.5,
            reduce_ns_per_byte: 0.25,
        };
        let system = SystemCosts {
            cores: 3,
            send_ns: 1.0,
            send_ns_per_byte: 2.0,
            receive_ns: 3.0,
            receive_ns_per_byte: 4.0,
            miss_ns: 5.0,
            remote_ns: 6.0,
            give_way_ns: 7.0,
            switch_ns: 8.0,
            cold_ns: 9.0,
            crowd_ns: 9.5,
            wait_ns: 10.0,
            wake_ns: 11.0,
            wake_idle_ns: 12.0,
        };
        let text = predict::preset_text("a machine", &constants(&costs, &system));
        let preset = predict::read(&text).unwrap();
        let machine = preset.machine.unwrap();
        let values = [
            machine.cores.value(),
            machine.send.value(),
            machine.send_byte.value(),
            machine.receive.value(),
            machine.receive_byte.value(),
            machine.miss.value(),
            machine.remote.value(),
            machine.give_way.value(),
            machine.switch.value(),
            machine.cold.value(),
            machine.crowd.value(),
            machine.wait.value(),
            machine.wake.value(),
            machine.wake_idle.value(),
        ];
        assert_eq!(
            values,
            [3.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 9.5, 10.0, 11.0, 12.0]
        );
        assert_eq!((preset.memory.copy.value(), preset.memory.reduce.value()), (0.5, 0.25));
        assert!(machine.send.source().contains("tune --measure"));
    }
}
