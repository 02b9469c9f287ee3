//! `tributary swarm`: many seeds on all cores, and the log of those that fail.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tributary_swarm::{self as swarm, Story, Sweep, SweepOptions};

use crate::flags::SwarmFlags;

/// Seeds between two updates of the progress bar.
const SEEDS_PER_UPDATE: u64 = 256;

/// Runs the seeds; fails if one of them does.
pub(crate) fn run(flags: &SwarmFlags) -> anyhow::Result<ExitCode> {
    if let Some(threads) = flags.threads {
        rayon::ThreadPoolBuilder::new().num_threads(usize::from(threads)).build_global()?;
    }
    // A protocol machine that panics is a failure like any other, reported with its seed and log.
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let sweep = run_seeds(flags);
    let seconds = started.elapsed().as_secs_f64();
    let stories: Vec<Story> =
        sweep.failures.iter().filter_map(|failure| swarm::explain(failure.seed)).collect();
    let _ = std::panic::take_hook();
    let out = &mut io::stdout().lock();
    if flags.json {
        writeln!(out, "{}", as_json(&sweep, &stories, seconds))?;
    } else {
        tell(out, &sweep, &stories, seconds)?;
    }
    Ok(if sweep.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_seeds(flags: &SwarmFlags) -> Sweep {
    let is_watched = io::stderr().is_terminal() && !flags.json;
    let count = flags.seeds.end - flags.seeds.start;
    let bar = if is_watched { ProgressBar::new(count) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds  {per_sec}  {msg}");
    bar.set_style(style.expect("the template is constant and valid"));
    let options = SweepOptions { seeds: flags.seeds.clone(), failures_max: flags.failures };
    let sweep = swarm::sweep(&options, |done, failed| {
        if done.is_multiple_of(SEEDS_PER_UPDATE) {
            bar.set_position(done);
            if failed > 0 {
                bar.set_message(format!("{failed} failed"));
            }
        }
    });
    bar.finish_and_clear();
    sweep
}

fn tell(out: &mut impl Write, sweep: &Sweep, stories: &[Story], seconds: f64) -> io::Result<()> {
    for story in stories {
        writeln!(out, "seed {} at {}: {}", story.seed, swarm::COMMIT, story.violation)?;
        for line in &story.lines {
            writeln!(out, "  {line}")?;
        }
        writeln!(out, "again: tributary swarm --seeds {}..{}\n", story.seed, story.seed + 1)?;
    }
    writeln!(
        out,
        "{} seeds, {} failed; {} groups, {} of them cut short by faults; {} completions, {} of them over direct \
         links; {} trees regained; {} groups of the next build; {} segments inside kernels; {} frames; {} completions in \
         replicated groups",
        sweep.seeds,
        sweep.failures.len(),
        sweep.groups,
        sweep.groups_failed,
        sweep.completions,
        sweep.completions_over_links,
        sweep.trees_regained,
        sweep.groups_of_next_build,
        sweep.segments_in_kernel,
        sweep.frames,
        sweep.completions_in_groups
    )?;
    let hits: Vec<String> = faults(sweep).map(|(name, hits)| format!("{hits} {name}")).collect();
    writeln!(out, "faults that hit: {}", hits.join(", "))?;
    let seen: Vec<String> = states(sweep).map(|(name, times)| format!("{times} {name}")).collect();
    writeln!(out, "states of ranks and hosts: {}", seen.join(", "))?;
    writeln!(
        out,
        "commit {}, trace {:016x}, {seconds:.1} s, {:.0} seeds/s",
        swarm::COMMIT,
        sweep.trace_hash,
        sweep.seeds as f64 / seconds
    )
}

fn faults(sweep: &Sweep) -> impl Iterator<Item = (&'static str, u64)> {
    swarm::FAULT_NAMES.into_iter().zip(sweep.faults)
}

fn states(sweep: &Sweep) -> impl Iterator<Item = (&'static str, u64)> {
    swarm::STATE_NAMES.into_iter().zip(sweep.states)
}

fn as_json(sweep: &Sweep, stories: &[Story], seconds: f64) -> serde_json::Value {
    let failures: Vec<serde_json::Value> = stories
        .iter()
        .map(|story| {
            json!({
                "seed": story.seed,
                "violation": story.violation.to_string(),
                "story": story.lines,
            })
        })
        .collect();
    json!({
        "commit": swarm::COMMIT,
        "seeds": sweep.seeds,
        "failures": failures,
        "groups": sweep.groups,
        "groups_failed": sweep.groups_failed,
        "faults": faults(sweep).collect::<BTreeMap<_, _>>(),
        "states": states(sweep).collect::<BTreeMap<_, _>>(),
        "completions": sweep.completions,
        "completions_over_links": sweep.completions_over_links,
        "completions_in_groups": sweep.completions_in_groups,
        "trees_regained": sweep.trees_regained,
        "groups_of_next_build": sweep.groups_of_next_build,
        "segments_in_kernel": sweep.segments_in_kernel,
        "frames": sweep.frames,
        "steps": sweep.steps,
        "trace_hash": format!("{:016x}", sweep.trace_hash),
        "wall_s": seconds,
    })
}
