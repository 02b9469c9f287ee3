//! `tributary tune`: measures this machine with the benchmark, path by path, or the hosts of an MPI's launcher ([`launched`]),
//! and writes the file that communicators select paths by.

mod launched;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use tributary_bench::{Collective, measure_costs};
use tributary_client::Settings;
use tributary_client::knobs::{self, Knob};
use tributary_measuring::paths::{LEADERS, requirement_of};
use tributary_tuning::{AlgorithmChoice, CostsRow, Measurement, MessageCarrier, Method, Tuning};

use crate::bench::sizes;
use crate::flags::TuneFlags;
use crate::usage;

/// Numbers of sub-partitions of each leader's share to try.
const SUB_PARTITIONS: [u32; 2] = [1, 4];

/// One path on which all lengths are measured.
#[derive(Clone, Copy)]
struct Trial {
    collective: Collective,
    hosts: u32,
    ranks: u32,
    method: Method,
    algorithm: AlgorithmChoice,
    leaders: u32,
    sub_partitions: u32,
}

/// The fields of a benchmark's line that are kept.
#[derive(Deserialize)]
struct BenchRow {
    size_bytes: u64,
    op_median_us: f64,
}

/// Measures and writes.
pub(crate) fn tune(flags: TuneFlags) -> anyhow::Result<ExitCode> {
    Settings::from_env().map_err(usage::from_setting)?;
    sizes::parse(&flags.sizes, 4)?;
    if !flags.launcher.is_empty() {
        return launched::tune(&flags);
    }
    let mut tuning = constants(flags.address)?;
    if !flags.measure {
        for trial in trials(&flags) {
            tuning.measurements.extend(trial.measure(&flags.sizes, flags.iters)?);
            // Keeps the measurements so far if a later trial fails.
            tuning.write(&flags.file)?;
        }
    }
    tuning.write(&flags.file)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", summary(&tuning, &flags.file))?;
    Ok(ExitCode::SUCCESS)
}

/// Measures the constants of the model.
pub(crate) fn constants(address: IpAddr) -> anyhow::Result<Tuning> {
    Ok(Tuning {
        machine: tributary_client::machine_name(),
        costs: Some(CostsRow::from(measure_costs(address)?)),
        ..Tuning::default()
    })
}

/// Measures allreduces as the model describes them: over direct links by recursive doubling, with each
/// number of [`LEADERS`] up to the processes of a host.
pub(crate) fn by_leaders(
    hosts: u32,
    ppn: u32,
    sizes: &str,
    iters: u64,
) -> anyhow::Result<Vec<Measurement>> {
    let mut measurements = Vec::new();
    for leaders in LEADERS.into_iter().filter(|leaders| *leaders <= ppn) {
        let trial = Trial {
            collective: Collective::Allreduce,
            hosts,
            ranks: hosts * ppn,
            method: Method::Direct,
            algorithm: AlgorithmChoice::RecursiveDoubling,
            leaders,
            sub_partitions: 1,
        };
        measurements.extend(trial.measure(sizes, iters)?);
    }
    Ok(measurements)
}

/// Every path to try, for every number of hosts and processes.
fn trials(flags: &TuneFlags) -> Vec<Trial> {
    let mut trials = Vec::new();
    for collective in flags.collectives.iter().copied().map(Collective::from) {
        for &hosts in &flags.hosts {
            for &ppn in &flags.ppn {
                let (hosts, ppn) = (hosts as u32, ppn as u32);
                let trial = Trial {
                    collective,
                    hosts,
                    ranks: hosts * ppn,
                    method: Method::Tree,
                    algorithm: AlgorithmChoice::Auto,
                    leaders: 1,
                    sub_partitions: 1,
                };
                trials.push(trial);
                trials.extend(direct(trial, ppn));
            }
        }
    }
    trials
}

/// The paths over direct links: every algorithm that suits some length, then more leaders.
fn direct(trial: Trial, ppn: u32) -> impl Iterator<Item = Trial> {
    let trial = Trial { method: Method::Direct, ..trial };
    let is_allreduce = trial.collective == Collective::Allreduce;
    let algorithms: &[AlgorithmChoice] = match (is_allreduce, trial.hosts) {
        // Between two hosts, halving and the ring are the same exchange of halves.
        (true, 2) => &[AlgorithmChoice::RecursiveDoubling, AlgorithmChoice::Rabenseifner],
        (true, _) => &[
            AlgorithmChoice::RecursiveDoubling,
            AlgorithmChoice::Rabenseifner,
            AlgorithmChoice::Ring,
            AlgorithmChoice::Linear,
        ],
        // Between two hosts, every algorithm sends the same messages.
        (false, 2) => &[AlgorithmChoice::Auto],
        (false, _) => &[AlgorithmChoice::Auto, AlgorithmChoice::Linear],
    };
    let leaders = LEADERS
        .into_iter()
        .filter(move |leaders| *leaders == 1 || (is_allreduce && *leaders <= ppn));
    let parts = SUB_PARTITIONS.into_iter();
    // A rank alone on its host has nothing to overlap.
    let parts = parts.filter(move |parts| *parts == 1 || (is_allreduce && ppn > 1));
    leaders.flat_map(move |leaders| {
        parts.clone().flat_map(move |sub_partitions| {
            algorithms.iter().map(move |algorithm| Trial {
                leaders,
                sub_partitions,
                algorithm: *algorithm,
                ..trial
            })
        })
    })
}

impl Trial {
    /// Runs this program's own benchmark with the knobs of the trial, `iters` operations per size.
    fn measure(&self, sizes: &str, iters: u64) -> anyhow::Result<Vec<Measurement>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", self.collective.name(), "--json", "--no-verify"]);
        command.args(["--procs", &self.ranks.to_string(), "--hosts", &self.hosts.to_string()]);
        command.args(["--iters", &iters.to_string()]);
        if self.collective != Collective::Barrier {
            command.args(["--sizes", sizes]);
        }
        let mut set = |knob: &Knob, value: &str| {
            command.env(knob.name, value);
        };
        set(&knobs::BETWEEN_HOSTS, self.method.name());
        // What is measured is what was named.
        set(&knobs::REQUIRE, requirement_of(self.method).name());
        set(&knobs::LEADERS, &self.leaders.to_string());
        set(&knobs::SUB_PARTITIONS, &self.sub_partitions.to_string());
        set(&knobs::DIRECT_ALGORITHM, self.algorithm.name());
        set(&knobs::TUNING, "off");
        let ended =
            command.stderr(Stdio::inherit()).output().context("the benchmark did not start")?;
        if !ended.status.success() {
            bail!("the benchmark of {} on {} hosts failed", self.collective.name(), self.hosts);
        }
        let text = String::from_utf8(ended.stdout).context("the benchmark's output is not text")?;
        text.lines().map(|line| self.measurement(line)).collect()
    }

    fn measurement(&self, line: &str) -> anyhow::Result<Measurement> {
        let row: BenchRow =
            serde_json::from_str(line).context("the benchmark's output can't be read")?;
        Ok(Measurement {
            collective: self.collective.kind(),
            hosts: self.hosts,
            ranks: self.ranks,
            len_bytes: row.size_bytes,
            method: self.method,
            carrier: MessageCarrier::Links,
            algorithm: self.algorithm,
            groups: None,
            leaders: self.leaders,
            sub_partitions: self.sub_partitions,
            time_us: row.op_median_us,
            quartiles_us: None,
        })
    }
}

fn summary(tuning: &Tuning, path: &Path) -> String {
    let measured = tuning.measurements.len();
    format!("{}: the model's constants and {measured} measured paths", path.display())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::flags::{Command, Flags};

    #[test]
    fn trials_cover_methods_algorithms_and_leaders_once_each() {
        let line = "tributary tune --hosts 2,4 --ppn 1,2 --collectives allreduce,barrier t.toml";
        let flags = Flags::try_parse_from(line.split(' ')).unwrap();
        let Command::Tune(flags) = flags.command else { panic!("not tune") };
        let trials = trials(&flags);
        let count = |kind, method, hosts: u32, ranks: u32| {
            let is_it = |trial: &&Trial| {
                (trial.collective, trial.method) == (kind, method)
                    && (trial.hosts, trial.ranks) == (hosts, ranks)
            };
            trials.iter().filter(is_it).count()
        };
        let allreduce = Collective::Allreduce;
        assert_eq!(count(allreduce, Method::Tree, 2, 4), 1);
        assert_eq!(count(allreduce, Method::Direct, 2, 2), 2);
        assert_eq!(count(allreduce, Method::Direct, 4, 8), 16);
        assert_eq!(count(Collective::Barrier, Method::Direct, 2, 4), 1);
        assert_eq!(count(Collective::Barrier, Method::Direct, 4, 8), 2);
    }

    #[test]
    fn a_line_of_the_benchmark_becomes_a_measurement() {
        let trial = Trial {
            collective: Collective::Allreduce,
            hosts: 2,
            ranks: 4,
            method: Method::Direct,
            algorithm: AlgorithmChoice::Ring,
            leaders: 2,
            sub_partitions: 1,
        };
        let row = trial.measurement(r#"{"size_bytes":8,"op_median_us":2.5,"path":"direct"}"#);
        let row = row.unwrap();
        assert_eq!((row.len_bytes, row.time_us, row.leaders), (8, 2.5, 2));
        assert!(trial.measurement("done").is_err());
    }
}
