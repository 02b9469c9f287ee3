//! `tributary bench`: collectives between processes that it starts, without any MPI; or through a launcher of MPI
//! (`launched`), with the library and without.
//!
//! Of processes of its own: the parent (`hub`) starts one child per rank (`rank`), is their bootstrap, and collects their times. If
//! a rank ends early, it says what happened to each. It runs no collective itself.

mod bootstrap;
mod children;
mod hub;
mod launched;
mod message;
mod output;
mod overlap;
mod pattern;
mod plan;
mod rank;
pub(crate) mod sizes;
mod timing;

use std::process::ExitCode;

use tributary_client::{Requirement, knobs};

use crate::fabric::{self, Environment};
use crate::flags::{BenchFlags, PathFlag};
use crate::signals::Signals;
use plan::Plan;

pub(crate) use rank::run as run_rank;

/// Runs the benchmark, one path after the other.
pub(crate) fn run(flags: BenchFlags) -> anyhow::Result<ExitCode> {
    if !flags.launcher.is_empty() {
        return launched::run(&flags);
    }
    let plan = Plan::try_from(flags)?;
    let signals = Signals::catch()?;
    let hosts_max = plan.paths.iter().map(|&path| plan.hosts_of(path)).max().unwrap_or(1);
    let fabric = fabric::join_or_start(hosts_max, plan.transport)?;
    let mut output = output::Output::new(&plan);
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
        if let Err(failure) = hub::run(&plan, path, &environment, &signals, &mut output) {
            output.abandon();
            return Err(failure.into());
        }
    }
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}
