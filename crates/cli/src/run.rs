//! `tributary run`: a command whose MPI collectives go through aggregation trees.

mod arguments;
mod command;
mod handing_on;
pub(crate) mod launchers;
pub(crate) mod library;
mod preload;
pub(crate) mod program;
mod report;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use tributary_client::knobs;

use crate::fabric::{self, Environment};
use crate::flags::RunFlags;
use crate::flags::TransportFlag;
use crate::usage::Misuse;
use arguments::Arguments;
pub(crate) use command::{Target, await_end, exit_code};
use handing_on::Addition;
pub(crate) use preload::Preload;

/// Runs the command and shows its report.
pub(crate) fn run(flags: RunFlags) -> anyhow::Result<ExitCode> {
    let variable = |name: &str| std::env::var_os(name);
    if let Some(problem) = launchers::wrong_way_round(variable, &flags.command) {
        return Err(Misuse(problem).into());
    }
    let mut arguments = Arguments::try_from(flags)?;
    let report = report::Destination::new(arguments.report.as_deref())?;
    let fabric = if arguments.brings_aggregator {
        fabric::start_for_job()?
    } else {
        fabric::join_or_start(arguments.hosts, TransportFlag::Auto)?
    };
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
    let before = std::env::var_os("LD_PRELOAD");
    let preload = Preload::new(&arguments.library, before.as_deref())
        .context("the preload library can't be named in LD_PRELOAD")?;
    if let Some(note) = &preload.note {
        writeln!(io::stderr().lock(), "tributary: {note}")?;
    }
    environment.set_variable("LD_PRELOAD", &preload.value);
    let sanitizer = std::env::var_os("ASAN_OPTIONS");
    if let Some(options) = preload::sanitizer_options(sanitizer.as_deref()) {
        environment.set_variable("ASAN_OPTIONS", options);
    }
    hand_on(&mut arguments, &mut environment);
    let status = command::run(&arguments, &environment)?;
    drop(fabric);
    report.show(&run_id, &arguments, status)?;
    Ok(ExitCode::from(exit_code(status)))
}

/// Has the launcher hand on to other hosts what the ranks need to have, if it does not by itself.
fn hand_on(arguments: &mut Arguments, environment: &mut Environment) {
    let Some(major) = launchers::open_mpi_version(&arguments.program, &arguments.command) else {
        return;
    };
    let inherited =
        std::env::vars_os().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name);
    let set = environment.variables().map(|(name, _)| OsString::from(name));
    let mut names: Vec<OsString> =
        inherited.chain(set).filter(|name| handing_on::is_needed(name)).collect();
    names.sort_unstable();
    names.dedup();
    let list = std::env::var_os(handing_on::LIST);
    match handing_on::addition(major, &arguments.command, &names, list.as_deref()) {
        Addition::Variable(name, value) => environment.set_variable(name, value),
        Addition::Command(words) => arguments.command = words,
    }
}

/// A name that no other run on this machine has.
fn new_run_id() -> OsString {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), since_epoch.as_nanos()).into()
}
