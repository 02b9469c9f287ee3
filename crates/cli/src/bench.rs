//! `tributary bench`: collectives between processes of its own, without any MPI.
//!
//! The parent (`hub`) starts one child per rank (`rank`), is their bootstrap, collects what they
//! measured and says what happened when one of them ends early. It runs no collective itself.

mod bootstrap;
mod children;
mod hub;
mod message;
mod output;
mod overlap;
mod pattern;
mod plan;
mod rank;
pub(crate) mod sizes;
mod timing;

use std::process::ExitCode;

use tributary_client::knobs;

use crate::fabric::{self, Environment, Fabric};
use crate::flags::{AlgorithmFlag, BenchFlags};
use crate::signals::Signals;
use plan::Plan;

pub(crate) use rank::run as run_rank;

/// Runs the benchmark, one way after the other.
pub(crate) fn run(flags: BenchFlags) -> anyhow::Result<ExitCode> {
    let plan = Plan::try_from(flags)?;
    let signals = Signals::catch()?;
    let hosts_max = plan.ways.iter().map(|&way| plan.hosts_of(way)).max().unwrap_or(1);
    // One host needs no tree.
    let fabric = if hosts_max > 1 {
        fabric::join_or_start(hosts_max, plan.transport)?
    } else {
        Fabric::Named
    };
    let mut output = output::Output::new(&plan);
    for &way in &plan.ways {
        let mut environment: Environment = fabric.environment();
        environment.set(&knobs::HOSTS, plan.hosts_of(way).to_string());
        environment.set(&knobs::TRANSPORT, plan.transport.name());
        if let AlgorithmFlag::Tree | AlgorithmFlag::Mesh = way {
            environment.set(&knobs::BETWEEN_HOSTS, way.name());
        }
        if let Err(failure) = hub::run(&plan, way, &environment, &signals, &mut output) {
            output.abandon();
            return Err(failure.into());
        }
    }
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}
