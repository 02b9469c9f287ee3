//! `tributary lab`: passes options to the lab's library, and prints its answers as text or JSON.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum as _;
use serde::Serialize;
use tributary_lab::cores::{Cores, CoresError};
use tributary_lab::directory::{self, Directory, LabConfig, LabName};
use tributary_lab::launch::{self, AgentCall};
use tributary_lab::network::{LinkOptions, NodePlacement, Shape};
use tributary_lab::plan::{Member, Plan, Role};
use tributary_lab::session::Request;
use tributary_lab::switch::{PortCounts, SwitchCounts};
use tributary_lab::{Lab, OpenError, Scheduling, UpError, UpOptions};

use crate::flags::{
    LabAction, LabAgentFlags, LabExecFlags, LabNodesFlag, LabRunFlags, LabStatusFlags,
    LabSupervisorFlags, LabUpFlags,
};
use crate::lab_links;
use crate::signals;
use crate::usage::UsageError;
use tributary_views::tables;

/// Runs a subcommand of `lab`.
pub(crate) fn lab(action: LabAction) -> anyhow::Result<ExitCode> {
    match action {
        LabAction::Up(flags) => up(flags),
        LabAction::Down(flags) => down(&flags.name),
        LabAction::Exec(flags) => exec(flags),
        LabAction::Run(flags) => run(flags),
        LabAction::Status(flags) => status(&flags),
        LabAction::Check(flags) => lab_links::check(&flags),
    }
}

/// Runs the supervisor of a lab.
pub(crate) fn supervisor(flags: &LabSupervisorFlags) -> anyhow::Result<ExitCode> {
    tributary_lab::supervise(&flags.directory)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a launcher's command on another host.
pub(crate) fn agent(flags: LabAgentFlags) -> anyhow::Result<ExitCode> {
    let call = AgentCall::parse(flags.arguments)
        .map_err(|error| UsageError::new("launch agent", "", error.to_string()))?;
    let lab =
        Lab::at(Directory::at(&flags.directory)).context("the lab's description can't be read")?;
    let host = call.host.clone();
    run_in(&lab, &host, Request::here(call.words()))
}

fn up(flags: LabUpFlags) -> anyhow::Result<ExitCode> {
    let placement = match flags.nodes {
        LabNodesFlag::All => NodePlacement::All,
        LabNodesFlag::Spine => NodePlacement::Spine,
        LabNodesFlag::Inside => NodePlacement::Inside,
    };
    let number = |value: u64| u32::try_from(value).expect("the options' ranges end below 2^32");
    let shape = Shape::new(number(flags.hosts), number(flags.hosts_per_leaf), placement)?;
    let tcp_rto_min_ms =
        flags.tcp_rto_min.map(|ms| u32::try_from(ms).expect("the option's range ends at 10,000"));
    let links = LinkOptions {
        rate: flags.rate,
        loss: flags.loss,
        tcp_rto_min_ms,
        blocks_multicast: flags.block_multicast,
        has_single_packets: flags.single_packets,
        delay: flags.delay,
        spine_delay: flags.spine_delay,
        jitter: flags.jitter,
    };
    let refused = |error: CoresError| UsageError::new("--cores-per-host", "", error.to_string());
    let cores = flags.cores_per_host.map(|each| Cores::divide(shape.hosts(), number(each)));
    let cores = cores.transpose().map_err(refused)?;
    let config = LabConfig {
        plan: Plan::new(shape, links),
        program: std::env::current_exe().context("this program's path is unknown")?,
        node_spin_us: flags.node_spin,
        node_kernel: flags.node_kernel,
        rings: flags.rings.and_then(|it| Some(it.to_possible_value()?.get_name().to_owned())),
        has_multicast: !flags.no_multicast,
        authenticates_frames: flags.authenticate_frames,
        cores,
    };
    let options = UpOptions { name: flags.lab.name, config };
    let lab = tributary_lab::up(&options).map_err(|error| match error {
        // Only another user or another machine can help.
        UpError::NotPermitted { .. } | UpError::NoDevices { .. } => {
            anyhow::Error::from(UsageError::new("lab up", "", error.to_string()))
        }
        other => other.into(),
    })?;
    if let scheduling @ Scheduling::Apart(_) = lab.scheduling()? {
        writeln!(io::stderr(), "lab {}: the kernel schedules {scheduling}", options.name)?;
    }
    if let Some(reason) = lab_links::switch_counts(&lab).and_then(|it| it.without_priority) {
        let text = "so busy processors delay frames";
        writeln!(
            io::stderr(),
            "lab {}: its switch has no real-time priority ({reason}), {text}",
            options.name
        )?;
    }
    let plan = lab.plan();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "lab {} is up: {} hosts, {} switches, {} aggregation nodes",
        options.name,
        plan.members_of(Role::Host).count(),
        plan.members_of(Role::Switch).count(),
        plan.nodes().count(),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Ends a lab. Drops that nobody asked for are shown last: they make figures of that lab worthless.
fn down(name: &LabName) -> anyhow::Result<ExitCode> {
    let counts = Lab::open(name).ok().and_then(|lab| lab_links::switch_counts(&lab));
    tributary_lab::down(name)?;
    if let Some(counts) = counts.filter(|counts| counts.total(PortCounts::drops) > 0) {
        write!(io::stderr(), "{}", lab_links::switch_text(&counts))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn exec(flags: LabExecFlags) -> anyhow::Result<ExitCode> {
    let lab = Lab::open(&flags.lab.name)?;
    let names: Vec<&str> = lab.plan().members.iter().map(|member| member.name.as_str()).collect();
    if !names.contains(&flags.host.as_str()) {
        let allowed = format!("one of {} is allowed", names.join(", "));
        return Err(UsageError::new("HOST", flags.host, allowed).into());
    }
    run_in(&lab, &flags.host, Request::here(flags.command))
}

fn run(flags: LabRunFlags) -> anyhow::Result<ExitCode> {
    let lab = Lab::open(&flags.lab.name)?;
    let ranks_per_host =
        u32::try_from(flags.ranks_per_host).expect("the option's range ends at 1024");
    if let Some(hint) = launch::hint(&flags.command, |name| std::env::var_os(name)) {
        writeln!(io::stderr(), "lab run: {hint}")?;
    }
    let mut words: Vec<OsString> = Vec::new();
    if !flags.plain {
        words.extend([std::env::current_exe()?.into(), "run".into()]);
        if let Some(report) = flags.report {
            words.extend(["--report".into(), report]);
        }
        words.push("--".into());
    }
    words.extend(flags.command);
    let mut request = Request::here(words);
    let variables = lab
        .launch_environment(ranks_per_host, |name| std::env::var_os(name).is_some())
        .context("the lab's host files can't be written")?;
    for (name, value) in variables {
        request.set(name, value);
    }
    let first = lab.plan().members_of(Role::Host).next().expect("a lab has hosts").name.clone();
    let before = lab_links::switch_counts(&lab);
    let code = run_in(&lab, &first, request)?;
    let after = lab_links::switch_counts(&lab);
    if let (Some(before), Some(after)) = (before, after) {
        write!(io::stderr(), "{}", lab_links::switch_text(&after.since(&before)))?;
    }
    Ok(code)
}

/// Runs a command in a member with this process's standard descriptors, and passes signals on.
fn run_in(lab: &Lab, member: &str, request: Request) -> anyhow::Result<ExitCode> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let session = lab.start(member, request, [input.as_fd(), output.as_fd(), error.as_fd()])?;
    let signaller = session.signaller()?;
    signals::forward(&signals::PASSED_ON, move |caught| {
        if let Ok(signal) = u8::try_from(caught.signal) {
            // A command that has ended needs no signal.
            let _ = signaller.send(signal);
        }
    })?;
    let status = session.wait()?;
    Ok(ExitCode::from(crate::run::exit_code(status)))
}

/// One lab of the list.
#[derive(Serialize)]
struct Listed {
    name: String,
    state: &'static str,
    hosts: Option<usize>,
}

/// One lab with all its members.
#[derive(Serialize)]
struct Shown<'a> {
    name: String,
    rate_bits_per_s: Option<u64>,
    loss_ppm: u32,
    delay_ns: Option<u64>,
    spine_delay_ns: u64,
    jitter_ns: u64,
    manager: String,
    scheduling: Scheduling,
    switch: Option<SwitchCounts>,
    members: &'a [Member],
}

fn status(flags: &LabStatusFlags) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match &flags.name {
        Some(name) => {
            let lab = Lab::open(name)?;
            let links = lab.plan().links;
            let shown = Shown {
                name: name.to_string(),
                rate_bits_per_s: links.rate.map(|rate| rate.bits_per_s()),
                loss_ppm: links.loss.parts_per_million(),
                delay_ns: links.delay.map(|delay| delay.nanoseconds()),
                spine_delay_ns: links.spine_delay.nanoseconds(),
                jitter_ns: links.jitter.nanoseconds(),
                manager: lab.plan().manager_address(),
                scheduling: lab.scheduling()?,
                switch: lab_links::switch_counts(&lab),
                members: &lab.plan().members,
            };
            if flags.json {
                writeln!(out, "{}", serde_json::to_string(&shown)?)?;
            } else {
                writeln!(out, "scheduled {}", shown.scheduling)?;
                write!(out, "{}", members_text(&lab))?;
                if let Some(counts) = &shown.switch {
                    write!(out, "{}", lab_links::switch_text(counts))?;
                }
            }
        }
        None => {
            let labs: Vec<Listed> = directory::names().iter().map(describe_lab).collect();
            if flags.json {
                writeln!(out, "{}", serde_json::to_string(&labs)?)?;
            } else {
                write!(out, "{}", labs_text(&labs))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn describe_lab(name: &LabName) -> Listed {
    let (state, hosts) = match Lab::open(name) {
        Ok(lab) => ("up", Some(lab.plan().members_of(Role::Host).count())),
        Err(OpenError::Dead { .. }) => ("dead", None),
        Err(_) => ("unclear", None),
    };
    Listed { name: name.to_string(), state, hosts }
}

fn labs_text(labs: &[Listed]) -> String {
    if labs.is_empty() {
        return "no labs\n".to_owned();
    }
    let mut table = tables::plain(["lab", "state", "hosts"]);
    for lab in labs {
        let hosts = lab.hosts.map_or_else(|| "-".to_owned(), |hosts| hosts.to_string());
        table.add_row([lab.name.clone(), lab.state.to_owned(), hosts]);
    }
    tables::right(&mut table, 2..3);
    format!("{}\n", tables::text(&table))
}

fn members_text(lab: &Lab) -> String {
    let links = lab_links::links_text(&lab.plan().links);
    let mut table = tables::plain(["member", "role", "address", "switch"]);
    for member in &lab.plan().members {
        table.add_row([
            member.name.clone(),
            member.role.name().to_owned(),
            member.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
            member.switch.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    format!("links: {links}\n{}\n", tables::text(&table))
}
