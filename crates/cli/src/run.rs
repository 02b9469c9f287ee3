//! `tributary run`: a command whose MPI collectives go through aggregation trees.

mod arguments;
mod command;
mod library;
mod program;
mod report;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use tributary_client::knobs;

use crate::fabric::{self, Environment};
use crate::flags::RunFlags;
use crate::flags::TransportFlag;
use arguments::Arguments;
pub(crate) use command::exit_code;

/// Runs the command and shows its report.
pub(crate) fn run(flags: RunFlags) -> anyhow::Result<ExitCode> {
    let arguments = Arguments::try_from(flags)?;
    let report = report::Destination::new(arguments.report.as_deref())?;
    let fabric = fabric::join_or_start(arguments.hosts, TransportFlag::Auto)?;
    let run_id = new_run_id();
    let mut environment = fabric.environment();
    environment.set(&knobs::HOSTS, arguments.hosts.to_string());
    environment.set(&knobs::TRANSPORT, arguments.transport.name());
    environment.set(&knobs::REPORT, report.path());
    environment.set(&knobs::RUN_ID, &run_id);
    if let Some(offload) = arguments.offload {
        environment.set(&knobs::OFFLOAD, offload.name());
    }
    if !arguments.times {
        // Nobody asked for them, so nobody should pay for them.
        environment.set(&knobs::TIMES, "off");
    }
    let status = command::run(&arguments, &with_preload(environment, &arguments))?;
    drop(fabric);
    report.show(&run_id, &arguments, status)?;
    Ok(ExitCode::from(exit_code(status)))
}

/// Puts our library before those that LD_PRELOAD has.
fn with_preload(mut environment: Environment, arguments: &Arguments) -> Environment {
    let mut preload = arguments.library.clone().into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    environment.set_variable("LD_PRELOAD", preload);
    environment
}

/// A name that no other run on this machine has.
fn new_run_id() -> OsString {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), since_epoch.as_nanos()).into()
}
