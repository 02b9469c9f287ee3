//! `tributary bench`: collectives between processes that it starts, without any MPI; or through a launcher of MPI
//! (`launched`), with the library and without.
//!
//! Makes a plan of the flags (`plan`), runs it on one path after the other by crate `bench`, and shows the figures (`output`).

mod launched;
mod output;
mod plan;
pub(crate) mod sizes;

use std::process::{Command, ExitCode};

use tributary_bench::{BenchError, Benchmark, name_signal};
use tributary_client::{Requirement, knobs};

use crate::fabric::{self, Environment};
use crate::flags::{BenchFlags, PathFlag};
use crate::signals::Signals;
use output::Output;
use plan::Plan;

/// Runs the benchmark, one path after the other.
pub(crate) fn run(flags: BenchFlags) -> anyhow::Result<ExitCode> {
    if !flags.launcher.is_empty() {
        return launched::run(&flags);
    }
    let plan = Plan::try_from(flags)?;
    let signals = Signals::catch()?;
    let hosts_max = plan.paths.iter().map(|&path| plan.hosts_of(path)).max().unwrap_or(1);
    let fabric = fabric::join_or_start(hosts_max, plan.transport)?;
    let mut output = Output::new(&plan);
    for &path in &plan.paths {
        let mut environment: Environment = fabric.environment();
        environment.set(&knobs::HOSTS, plan.hosts_of(path).to_string());
        environment.set(&knobs::TRANSPORT, plan.transport.name());
        if let PathFlag::Tree | PathFlag::Direct = path {
            environment.set(&knobs::BETWEEN_HOSTS, path.name());
        }
        if let PathFlag::Tree = path {
            environment.set(&knobs::REQUIRE, Requirement::Tree.name());
        }
        if let Err(failure) = run_path(&plan, path, &environment, &signals, &mut output) {
            output.abandon();
            return Err(match failure {
                BenchError::Output(error) => error.into(),
                failure => failure.into(),
            });
        }
    }
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the plan's work on one path, and puts a row per size into `output`.
fn run_path(
    plan: &Plan,
    path: PathFlag,
    environment: &Environment,
    signals: &Signals,
    output: &mut Output,
) -> Result<(), BenchError> {
    output.progress_to(path, 0);
    let benchmark = Benchmark::start(plan.ranks, &plan.work, || {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bench-rank").envs(environment.variables());
        Ok(command)
    })?;
    let stop = benchmark.stopper();
    let _watch = signals.watch(move |signal| stop(name_signal(signal)));
    benchmark.run(|row| output.row(path, row))
}
