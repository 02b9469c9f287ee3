//! `tributary sim replay`: whole programs in the simulator.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use tributary_charts::{Cell, Table};
use tributary_replay::comparison::Comparison;
use tributary_replay::goal as goal_run;
use tributary_replay::mix::{self, Mix};
use tributary_replay::run::ReplayError;
use tributary_sim::input::Refused;
use tributary_sim::measure::Quartiles;
use tributary_sim::preset::Preset;
use tributary_sim::system::SystemPlan;
use tributary_workload::trace::{self, Joint, Trace};
use tributary_workload::{Workload, goal};

use crate::flags::ReplayFlags;
use crate::sim::{as_text, cluster, print_table, refused_option};
use crate::usage::UsageError;

/// Replays what the options name.
pub(crate) fn run(flags: &ReplayFlags) -> anyhow::Result<ExitCode> {
    let preset = cluster(&flags.cluster)?;
    if let Some(name) = &flags.program.print_mix {
        let text = mix::text(name).ok_or_else(|| unknown_mix("--print-mix", name))?;
        io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &flags.program.goal {
        return replay_goal(flags, &preset, path);
    }
    if let Some(path) = &flags.program.trace {
        let trace = read_trace(path)?;
        let joint = joint(path, &trace)?;
        return compare(flags, &preset, &joint.workload(&path.display().to_string()));
    }
    let name = flags.program.mix.as_deref().unwrap_or_default();
    let workload = workload_of_mix(flags, &read_mix(name)?)?;
    match &flags.write_goal {
        Some(path) => write_goal(flags, &preset, &workload, path),
        None => compare(flags, &preset, &workload),
    }
}

fn compare(flags: &ReplayFlags, preset: &Preset, workload: &Workload) -> anyhow::Result<ExitCode> {
    let plan = SystemPlan::new(preset)?;
    let compared = Comparison::new(preset, &plan, workload, flags.seed).map_err(about_options)?;
    if flags.csv {
        return print_table(&compared.classes(), true);
    }
    let mut out = io::stdout().lock();
    let (ranks, hosts) = (workload.ranks(), workload.host_count());
    let name = &workload.name;
    writeln!(
        out,
        "{name}: {ranks} ranks on {hosts} hosts of `{}`, seed {}",
        preset.name, flags.seed
    )?;
    writeln!(out, "{}\n", as_text(&compared.table()))?;
    writeln!(out, "{}", as_text(&compared.classes()))?;
    Ok(ExitCode::SUCCESS)
}

fn replay_goal(flags: &ReplayFlags, preset: &Preset, path: &Path) -> anyhow::Result<ExitCode> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("GOAL file {}", path.display()))?;
    let program = goal::read(&text)
        .map_err(|error| UsageError::new("--goal", path.to_string_lossy(), error.to_string()))?;
    let per_host = flags.processes.unwrap_or(1);
    let plan = SystemPlan::new(preset)?;
    let outcome =
        goal_run::run(preset, &plan, &program, per_host, flags.seed).map_err(about_options)?;
    let table = end_times_table(&outcome.ended_us);
    if flags.csv {
        return print_table(&table, true);
    }
    let mut out = io::stdout().lock();
    let (ranks, operations) = (program.ranks.len(), program.operations());
    let [min, q1, q2, q3, max] = Quartiles::of(&outcome.ended_us).to_array();
    writeln!(out, "{ranks} ranks, {operations} operations on `{}`, by hosts alone", preset.name)?;
    writeln!(
        out,
        "ranks end after (us): {min:.3} first, {q1:.3}, {q2:.3}, {q3:.3} by quarters, {max:.3} last"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn end_times_table(ended_us: &[f64]) -> Table {
    let mut table = Table::new(&["rank", "ended_us"]);
    for (rank, &us) in (0..).zip(ended_us) {
        table.add(vec![Cell::Whole(rank), Cell::Number(us, 3)]);
    }
    table
}

fn write_goal(
    flags: &ReplayFlags,
    preset: &Preset,
    workload: &Workload,
    path: &Path,
) -> anyhow::Result<ExitCode> {
    let program = goal_run::export(preset, workload, flags.seed)?;
    std::fs::write(path, goal::write(&program))
        .with_context(|| format!("GOAL file {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a trace.
pub(crate) fn read_trace(path: &Path) -> anyhow::Result<Trace> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("trace {}", path.display()))?;
    Ok(trace::read(&text)
        .map_err(|error| UsageError::new("--trace", path.to_string_lossy(), error.to_string()))?)
}

/// What the ranks of a trace did together.
pub(crate) fn joint<'a>(path: &Path, trace: &'a Trace) -> anyhow::Result<Joint<'a>> {
    Ok(Joint::new(trace)
        .map_err(|error| UsageError::new("--trace", path.to_string_lossy(), error.to_string()))?)
}

/// The mix of that name, or in that file.
fn read_mix(name: &str) -> anyhow::Result<Mix> {
    if let Some(mix) = mix::read_shipped(name) {
        return Ok(mix);
    }
    if !Path::new(name).exists() {
        return Err(unknown_mix("--mix", name).into());
    }
    let text = std::fs::read_to_string(name).with_context(|| format!("mix file {name}"))?;
    Ok(mix::read(&text).map_err(|error| UsageError::new("--mix", name, error.to_string()))?)
}

fn unknown_mix(option: &str, name: &str) -> UsageError {
    let known = mix::names().collect::<Vec<_>>().join(", ");
    UsageError::new(option, name, format!("allowed is one of {known}, or a file"))
}

/// The program that a mix describes, in the size that the options want.
fn workload_of_mix(flags: &ReplayFlags, mix: &Mix) -> anyhow::Result<Workload> {
    let ranks = flags.ranks.unwrap_or(mix.ranks);
    let per_host = flags.processes.unwrap_or(mix.processes_per_host);
    mix.workload(ranks, per_host).map_err(|refused| about_size(&refused))
}

/// A program that the system can't run, as an error about the option at fault.
pub(crate) fn about_options(error: ReplayError) -> anyhow::Error {
    match &error {
        ReplayError::Refused(refused) => about_size(refused),
        _ => error.into(),
    }
}

fn about_size(refused: &Refused) -> anyhow::Error {
    match refused.key.as_str() {
        "ranks" | "processes" => refused_option(refused),
        _ => UsageError::new("the program", "", refused.to_string()).into(),
    }
}
