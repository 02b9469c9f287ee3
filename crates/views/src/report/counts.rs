//! The counts of a report as text: every communicator and collective, and the reasons.

use tributary_report::CollectiveKind;
use tributary_report::{CommunicatorReport, Counts, Report};

use crate::tables;

/// The totals, then a table.
pub(super) fn text(report: &Report) -> String {
    let mut table = tables::plain([
        "communicator",
        "ranks",
        "hosts",
        "collective",
        "in_host",
        "in_tree",
        "direct",
        "passed_through",
        "why",
    ]);
    for communicator in &report.communicators {
        for (kind, counts) in &communicator.collectives {
            table.add_row(row(communicator, *kind, counts));
        }
    }
    tables::right(&mut table, 1..3);
    tables::right(&mut table, 4..8);
    let mut text = format!(
        "tributary: {} in_host, {} in_tree, {} direct, {} passed_through",
        report.in_host, report.in_tree, report.direct, report.passed_through
    );
    if !report.communicators.is_empty() {
        text.push('\n');
        text.push_str(&tables::text(&table));
    }
    if let Some(line) = report.describe_others() {
        text.push('\n');
        text.push_str(&line);
    }
    text
}

fn row(communicator: &CommunicatorReport, kind: CollectiveKind, counts: &Counts) -> [String; 9] {
    let label = match communicator.communicators {
        1 => communicator.label.clone(),
        several => format!("{} ({several} of them)", communicator.label),
    };
    let mut reasons: Vec<String> =
        counts.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if counts.direct > 0 && !communicator.note.is_empty() {
        reasons.push(format!("no tree: {}", communicator.note));
    }
    if counts.in_tree > 0 && communicator.avoiding_losses > 0 {
        let count = communicator.avoiding_losses;
        reasons.push(format!("{count} of all in the tree because links lose packets"));
    }
    if !communicator.memory.is_empty() {
        reasons.push(communicator.memory.clone());
    }
    [
        label,
        communicator.ranks.to_string(),
        // Not found out where it was not set up.
        if communicator.hosts == 0 { "-".to_owned() } else { communicator.hosts.to_string() },
        kind.name().to_owned(),
        counts.in_host.to_string(),
        counts.in_tree.to_string(),
        counts.direct.to_string(),
        counts.passed_through.to_string(),
        reasons.join("; "),
    ]
}

#[cfg(test)]
mod tests {
    use tributary_report::{Failovers, OtherCalls};

    use super::*;

    #[test]
    fn every_communicator_and_reason_is_shown() {
        let counts = Counts {
            in_host: 1,
            in_tree: 20,
            direct: 6,
            passed_through: 3,
            reasons: [("user-defined operator".to_owned(), 3)].into(),
        };
        let communicator = CommunicatorReport {
            label: "split".into(),
            ranks: 4,
            hosts: 2,
            communicators: 5,
            note: "refused".into(),
            carriers: "udp".into(),
            memory: "staged".into(),
            multicast_results: 0,
            failovers: Failovers::default(),
            avoiding_losses: 0,
            collectives: [(CollectiveKind::Reduce, counts)].into(),
        };
        let mut report = Report::default();
        report.add(&communicator);
        report.others.insert("alltoall".into(), OtherCalls { calls: 8, total_ns: 1_500_000 });
        report.others.insert("gather".into(), OtherCalls { calls: 4, total_ns: 0 });
        let text = text(&report);
        let others = "always the MPI's, calls at all ranks: 8 alltoall (1.5 ms), 4 gather";
        assert_eq!(text.lines().last(), Some(others));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "tributary: 1 in_host, 20 in_tree, 6 direct, 3 passed_through");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(
            words,
            [
                "split",
                "(5",
                "of",
                "them)",
                "4",
                "2",
                "reduce",
                "1",
                "20",
                "6",
                "3",
                "3",
                "user-defined",
                "operator;",
                "no",
                "tree:",
                "refused;",
                "staged"
            ]
        );
    }
}
