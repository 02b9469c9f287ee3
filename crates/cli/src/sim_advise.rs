//! `tributary sim advise`: would a tree help a traced program, and where do aggregators go?

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::Serialize;
use tributary_charts::{Cell, Table};
use tributary_replay::advice::{Advice, AdviceError, MODEL_OFF_MAX, Placement, advise};
use tributary_workload::trace::Trace;

use crate::flags::AdviseFlags;
use crate::sim::{as_text, cluster};
use crate::sim_replay::{about_options, joint, read_trace};

/// A gain within which nobody would notice it.
const NOTICED: f64 = 1.01;

/// Aggregators that are named in the table; more are counted.
const NAMES_MAX: usize = 4;

/// Advises on the trace that the options name.
pub(crate) fn run(flags: &AdviseFlags) -> anyhow::Result<ExitCode> {
    let preset = cluster(&flags.cluster)?;
    let trace = read_trace(&flags.trace)?;
    let joint = joint(&flags.trace, &trace)?;
    let advice = advise(&preset, &joint, flags.seed).map_err(|error| match error {
        AdviceError::Replay(error) => about_options(error),
        other => other.into(),
    })?;
    let mut out = io::stdout().lock();
    if flags.json {
        serde_json::to_writer_pretty(&mut out, &Json::of(&advice, &trace))?;
        writeln!(out)?;
        return Ok(ExitCode::SUCCESS);
    }
    write_head(&mut out, &advice, &trace)?;
    writeln!(out, "{}\n", as_text(&classes(&advice)))?;
    writeln!(out, "{}\n", as_text(&placements(&advice)))?;
    writeln!(out, "{}", verdict(&advice))?;
    Ok(ExitCode::SUCCESS)
}

fn write_head(out: &mut impl io::Write, advice: &Advice, trace: &Trace) -> io::Result<()> {
    writeln!(
        out,
        "{} ranks; {:.3} ms recorded, of which collectives between hosts take {:.2}% once the last rank \
         has come",
        trace.ranks.len(),
        advice.recorded_us / 1e3,
        100.0 * advice.collectives_share,
    )?;
    let (left_out, nonblocking) = not_recorded(trace);
    if left_out + nonblocking > 0 {
        writeln!(
            out,
            "not in the trace: {left_out} calls after it was full, {nonblocking} nonblocking"
        )?;
    }
    let ratio = advice.model_over_trace;
    writeln!(
        out,
        "hosts alone, simulated over measured: {ratio:.2}; so far is the model from your machine\n"
    )
}

/// Calls that the trace only counts.
fn not_recorded(trace: &Trace) -> (u64, u64) {
    let sum =
        |of: fn(&tributary_workload::trace::RankTrace) -> u64| trace.ranks.iter().map(of).sum();
    (sum(|rank| rank.left_out), sum(|rank| rank.nonblocking))
}

/// Each collective and length, by hosts alone.
fn classes(advice: &Advice) -> Table {
    let mut table =
        Table::new(&["operation", "bytes", "operations", "measured_us", "simulated_us", "ratio"]);
    for own in &advice.classes {
        let each = |sum_us: f64| sum_us / own.operations.max(1) as f64;
        table.add(vec![
            Cell::Text(own.class.kind.name().to_owned()),
            Cell::Whole(own.class.bytes),
            Cell::Whole(own.operations),
            Cell::Number(each(own.measured_us), 2),
            Cell::Number(each(own.hosts_us), 2),
            Cell::Number(own.hosts_us / own.measured_us.max(f64::MIN_POSITIVE), 2),
        ]);
    }
    table
}

fn placements(advice: &Advice) -> Table {
    let mut table =
        Table::new(&["nodes", "in_switches", "on_hosts", "gain", "from", "to", "where"]);
    for placement in &advice.placements {
        let gain = |gain: f64| {
            if placement.is_refused { Cell::Refused } else { Cell::Number(gain, 3) }
        };
        let Placement { nodes, gain: range, .. } = placement;
        table.add(vec![
            Cell::Whole((nodes.in_switches + nodes.on_hosts) as u64),
            Cell::Whole(nodes.in_switches as u64),
            Cell::Whole(nodes.on_hosts as u64),
            gain(range.likely),
            gain(range.low),
            gain(range.high),
            Cell::Text(names(&nodes.names)),
        ]);
    }
    table
}

fn names(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(" ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The placement that gains most; of those that gain alike, the one with the fewest aggregators.
fn best(advice: &Advice) -> Option<&Placement> {
    let count = |placement: &Placement| placement.nodes.names.len();
    let granted = advice.placements.iter().filter(|placement| !placement.is_refused);
    let most = granted.clone().map(|placement| placement.gain.likely).fold(0.0, f64::max);
    granted.filter(|placement| placement.gain.likely >= most / NOTICED).min_by_key(|own| count(own))
}

fn verdict(advice: &Advice) -> String {
    if !advice.is_conclusive() {
        return format!(
            "No conclusion: the model's hosts take {:.3} times as long as yours, beyond a factor of {MODEL_OFF_MAX}. Another \
             preset, or prices measured on your hosts, may come nearer.",
            advice.model_over_trace
        );
    }
    let Some(best) = best(advice) else {
        return "No tree: the system has no aggregation nodes, or all placements are refused."
            .into();
    };
    let (nodes, gain) = (best.nodes.names.len(), best.gain);
    let s = if nodes == 1 { "" } else { "s" };
    let range = format!("{:.3} times as fast, {:.3} to {:.3}", gain.likely, gain.low, gain.high);
    if gain.high < NOTICED {
        return format!("A tree does not help this program: {range}.");
    }
    if gain.low < NOTICED {
        return format!("A tree with {nodes} node{s} may help: {range}.");
    }
    format!("A tree with {nodes} node{s} helps: {range}.")
}

/// The advice as JSON; see `docs/workloads.md`.
#[derive(Serialize)]
struct Json {
    ranks: usize,
    recorded_us: f64,
    collectives_share: f64,
    model_over_trace: f64,
    is_conclusive: bool,
    left_out: u64,
    nonblocking: u64,
    collectives: Vec<JsonClass>,
    placements: Vec<JsonPlacement>,
    verdict: String,
}

#[derive(Serialize)]
struct JsonClass {
    operation: &'static str,
    bytes: u64,
    operations: u64,
    measured_us: f64,
    simulated_us: f64,
}

#[derive(Serialize)]
struct JsonPlacement {
    in_switches: usize,
    on_hosts: usize,
    nodes: Vec<String>,
    refused: bool,
    gain: f64,
    gain_low: f64,
    gain_high: f64,
}

impl Json {
    fn of(advice: &Advice, trace: &Trace) -> Self {
        let (left_out, nonblocking) = not_recorded(trace);
        let class = |own: &tributary_replay::advice::ClassAdvice| JsonClass {
            operation: own.class.kind.name(),
            bytes: own.class.bytes,
            operations: own.operations,
            measured_us: own.measured_us,
            simulated_us: own.hosts_us,
        };
        let placement = |own: &Placement| JsonPlacement {
            in_switches: own.nodes.in_switches,
            on_hosts: own.nodes.on_hosts,
            nodes: own.nodes.names.clone(),
            refused: own.is_refused,
            gain: own.gain.likely,
            gain_low: own.gain.low,
            gain_high: own.gain.high,
        };
        Self {
            ranks: trace.ranks.len(),
            recorded_us: advice.recorded_us,
            collectives_share: advice.collectives_share,
            model_over_trace: advice.model_over_trace,
            is_conclusive: advice.is_conclusive(),
            left_out,
            nonblocking,
            collectives: advice.classes.iter().map(class).collect(),
            placements: advice.placements.iter().map(placement).collect(),
            verdict: verdict(advice),
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_replay::advice::Range;
    use tributary_sim::system::Nodes;

    use super::*;

    fn advice(model_over_trace: f64) -> Advice {
        let nodes = Nodes { in_switches: 1, on_hosts: 0, names: vec!["node0".to_owned()] };
        let gain = Range { likely: 1.5, low: 1.4, high: 1.6 };
        Advice {
            recorded_us: 1e6,
            collectives_share: 0.5,
            model_over_trace,
            classes: Vec::new(),
            placements: vec![Placement { nodes, is_refused: false, gain }],
        }
    }

    #[test]
    fn a_model_that_misses_the_measured_hosts_concludes_nothing() {
        for near in [0.5, 1.0, 2.0] {
            let verdict = verdict(&advice(near));
            assert!(verdict.starts_with("A tree with 1 node helps: 1.500"), "{near}: {verdict}");
        }
        for far in [0.01, 0.499, 2.001, 100.0] {
            let verdict = verdict(&advice(far));
            assert!(
                verdict.starts_with("No conclusion: the model's hosts take"),
                "{far}: {verdict}"
            );
        }
    }
}
