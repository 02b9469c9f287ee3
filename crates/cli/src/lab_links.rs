//! Shows what the links of a lab with delay do, and what its switch has done.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use tributary_lab::check::{self, Findings, FlowFindings};
use tributary_lab::probe::Probe;
use tributary_lab::switch::{self, PortCounts, SwitchCounts};
use tributary_lab::{Lab, network::LinkOptions};

use crate::flags::{LabCheckFlags, LabProbeFlags};
use tributary_views::tables;

/// Exit code of a check that found faults.
const EXIT_FAULTS: u8 = 1;

/// Runs a probing process of `lab check`.
pub(crate) fn probe(flags: &LabProbeFlags) -> anyhow::Result<ExitCode> {
    let probe: Probe = serde_json::from_str(&flags.probe).context("the probe's description")?;
    probe.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Checks a lab's links.
pub(crate) fn check(flags: &LabCheckFlags) -> anyhow::Result<ExitCode> {
    let lab = Lab::open(&flags.lab.name)?;
    let frames = u32::try_from(flags.frames).expect("the option's range ends at 1,000,000");
    let findings = check::check(&lab, frames)?;
    let mut out = io::stdout().lock();
    if flags.json {
        writeln!(out, "{}", serde_json::to_string(&findings)?)?;
    } else {
        write!(out, "{}", findings_text(&findings))?;
    }
    let has_faults = findings.flows.iter().any(|flow| !flow.faults.is_empty());
    Ok(if has_faults { ExitCode::from(EXIT_FAULTS) } else { ExitCode::SUCCESS })
}

/// What a lab's links do, in one line.
pub(crate) fn links_text(links: &LinkOptions) -> String {
    let rate = links.rate.map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string());
    let Some(delay) = links.delay else { return format!("rate {rate}, loss {}", links.loss) };
    format!(
        "delay {delay}, across the spine {} more, jitter {}, rate {rate}, loss {}",
        links.spine_delay, links.jitter, links.loss
    )
}

/// What a lab's switch has done so far; `None` if the lab has none, or it does not answer.
pub(crate) fn switch_counts(lab: &Lab) -> Option<SwitchCounts> {
    lab.plan().links.has_delay().then(|| switch::ask(lab.directory()).ok()).flatten()
}

/// What a lab's switch has done, in a few lines.
pub(crate) fn switch_text(counts: &SwitchCounts) -> String {
    let total = |of: fn(&PortCounts) -> u64| counts.total(of);
    let most = counts.ports.iter().map(|(_, port)| port.most_frames).max().unwrap_or(0);
    let mut text = format!(
        "switch: {} frames sent, {} lost as asked, {} dropped, {most} waited at once\n",
        total(|port| port.sent),
        total(|port| port.lost),
        total(PortCounts::drops),
    );
    for (cause, count) in [
        ("a queue was full", total(|port| port.overflowed)),
        ("not read in time", total(|port| port.unread)),
        ("an interface was down", total(|port| port.refused)),
        ("for an unknown address", total(|port| port.unknown)),
        ("multicast, which is blocked", total(|port| port.blocked)),
    ] {
        if count > 0 {
            let _ = writeln!(text, "  dropped, {cause}: {count}");
        }
    }
    let late = |share| microseconds(counts.late.quantile_ns(share).unwrap_or(0) as i64);
    let _ = writeln!(
        text,
        "sent late by {} us (median), {} us (99 of 100), {} us (at most, ever)",
        late(0.5),
        late(0.99),
        microseconds(counts.late.most_ns() as i64),
    );
    if let Some(reason) = &counts.without_priority {
        let _ = writeln!(text, "the switch has no real-time priority: {reason}");
    }
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let _ = writeln!(
        text,
        "processor time: switch {:.2} s, whole lab {:.2} s, in {:.2} s on {cores} cores",
        seconds(counts.switch_ns),
        seconds(counts.lab_ns),
        seconds(counts.elapsed_ns),
    );
    text
}

fn findings_text(findings: &Findings) -> String {
    let mut table = tables::plain([
        "receiver", "sent to", "lost", "disorder", "asked us", "least", "median", "99%", "most",
    ]);
    for flow in &findings.flows {
        table.add_row(row(flow, findings.frames));
    }
    tables::right(&mut table, 2..9);
    let mut text = format!(
        "{} frames from {} to each, times one way in microseconds\n{}\n",
        findings.frames,
        findings.source,
        tables::text(&table)
    );
    text.push_str(&switch_text(&findings.switch));
    let mut has_faults = false;
    for flow in &findings.flows {
        for fault in &flow.faults {
            has_faults = true;
            let _ = writeln!(text, "FAULT: {}, {}: {fault}", flow.receiver, target(flow));
        }
    }
    if !has_faults {
        text.push_str("as asked for: no frame too early or out of order, losses within chance\n");
    }
    text
}

fn row(flow: &FlowFindings, frames: u32) -> [String; 9] {
    let lost = f64::from(frames) - f64::from(flow.arrivals.received);
    let asked = match flow.jitter_ns {
        0 => microseconds(flow.hold_ns as i64),
        most => format!("{}+{}", flow.hold_ns / 1_000, most / 1_000),
    };
    let [least, median, most_of_all, most] = flow.arrivals.ways_ns.map(microseconds);
    [
        flow.receiver.clone(),
        target(flow).to_owned(),
        format!("{:.2}%", lost * 100.0 / f64::from(frames)),
        flow.arrivals.disordered.to_string(),
        asked,
        least,
        median,
        most_of_all,
        most,
    ]
}

fn target(flow: &FlowFindings) -> &'static str {
    if flow.is_multicast { "all" } else { "it" }
}

fn microseconds(nanoseconds: i64) -> String {
    match nanoseconds {
        0..10_000 => format!("{:.1}", nanoseconds as f64 / 1e3),
        _ => (nanoseconds / 1_000).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fits_into_80_columns_and_names_faults() {
        let flow = FlowFindings {
            receiver: "h63".to_owned(),
            is_multicast: true,
            hold_ns: 100_000_000,
            jitter_ns: 10_000_000,
            loss_ppm: 10_000,
            arrivals: tributary_lab::probe::Arrivals {
                received: 988_000,
                disordered: 1_000_000,
                ways_ns: [100_001_000, 100_002_000, 110_003_000, 122_200_999],
            },
            faults: vec!["1000000 frames out of order".to_owned()],
        };
        let ports = vec![(
            "h63".to_owned(),
            PortCounts { sent: 99_999_999, unread: 3, overflowed: 4, ..PortCounts::default() },
        )];
        let switch = SwitchCounts { ports, ..SwitchCounts::default() };
        let findings =
            Findings { source: "h0".to_owned(), frames: 1_000_000, flows: vec![flow], switch };
        let text = findings_text(&findings);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("FAULT: h63, all: 1000000 frames out of order"), "{text}");
        assert!(text.contains("7 dropped"), "{text}");
        assert!(!text.contains("as asked for:"), "{text}");
    }
}
