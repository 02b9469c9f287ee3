//! The times of a report as text, and beside those of a baseline.

use tributary_report::{Compared, Measured, Report, Times, compare};

use super::units::{digits, middle_us, percent, seconds, size, us};
use crate::tables;

/// From which share of the time on a comparison tells of waiting.
const WAITING_TOLD: f64 = 0.25;

/// The share of the program's time, then every collective, path and size class.
pub(super) fn text(times: &Times) -> String {
    let header = [
        "collective",
        "path",
        "size",
        "calls",
        "total s",
        "mean us",
        "waiting",
        "p50 us",
        "p99 us",
    ];
    let mut table = tables::plain(header);
    for (kind, path, from_bytes, measured) in times.rows() {
        table.add_row([
            kind.name().to_owned(),
            path.name().to_owned(),
            size(from_bytes),
            measured.calls.to_string(),
            digits(measured.total_ns as f64 / 1e9),
            us(measured.mean_ns()),
            measured.waiting_share().map_or_else(|| "-".to_owned(), percent),
            middle_us(measured.quantile(0.5)),
            middle_us(measured.quantile(0.99)),
        ]);
    }
    tables::right(&mut table, 2..header.len());
    let mut lines = vec![times.headline()];
    lines.extend(times.omissions());
    if times.rows().next().is_some() {
        lines.push(tables::text(&table));
    }
    lines.join("\n")
}

/// Every collective and size class beside the baseline, then what that makes in all. Both reports have
/// times.
#[must_use]
pub fn comparison(report: &Report, baseline: &Report) -> String {
    let (Some(ours), Some(theirs)) = (&report.times, &baseline.times) else { return String::new() };
    let rows = compare(ours, theirs);
    let mut lines = vec![
        format!(
            "baseline: {} in_host, {} in_tree, {} direct, {} passed_through",
            baseline.in_host, baseline.in_tree, baseline.direct, baseline.passed_through
        ),
        format!("baseline {}", theirs.headline()),
        beside(&rows),
    ];
    lines.extend(verdict(ours, theirs, &rows));
    lines.join("\n")
}

fn beside(rows: &[Compared]) -> String {
    let header =
        ["collective", "size", "p50 us", "baseline", "ratio", "mean us", "baseline", "ratio"];
    let mut table = tables::plain(header);
    for row in rows {
        let [median, mean] = two(&row.ours);
        let [baseline_median, baseline_mean] = two(&row.baseline);
        table.add_row([
            row.kind.name().to_owned(),
            size(row.from_bytes),
            median,
            baseline_median,
            ratio(row.median_speed_up()),
            mean,
            baseline_mean,
            ratio(row.speed_up()),
        ]);
    }
    tables::right(&mut table, 1..header.len());
    tables::text(&table)
}

fn ratio(of: Option<f64>) -> String {
    of.map_or_else(|| "-".to_owned(), digits)
}

/// Median and mean.
fn two(measured: &Measured) -> [String; 2] {
    let mean = if measured.calls == 0 { "-".to_owned() } else { us(measured.mean_ns()) };
    [middle_us(measured.quantile(0.5)), mean]
}

/// Where mean and median tell different stories; what it makes in all; and a warning if the two reports are not of the same calls.
fn verdict(ours: &Times, baseline: &Times, rows: &[Compared]) -> Vec<String> {
    let (ours_ns, baseline_ns) = (ours.collectives_ns() as f64, baseline.collectives_ns() as f64);
    let mut lines: Vec<String> =
        rows.iter().filter(|row| row.mean_disagrees()).map(disagreement).collect();
    lines.extend(rows.iter().filter_map(without_waiting));
    lines.push(format!(
        "blocking collectives in all: {} s, {} s in the baseline",
        seconds(ours_ns),
        seconds(baseline_ns),
    ));
    lines.push(format!(
        "program in all: {} s, {} s in the baseline",
        seconds(ours.program_ns as f64),
        seconds(baseline.program_ns as f64),
    ));
    if rows.iter().any(|row| row.ours.calls != row.baseline.calls) {
        lines.push(
            "the two reports are of different calls: compare ratios, and not sums".to_owned(),
        );
    }
    lines
}

fn disagreement(row: &Compared) -> String {
    format!(
        "{} of {}: {} times as fast by the median, {} by the mean,\n  which a few long calls make",
        row.kind.name(),
        size(row.from_bytes),
        ratio(row.median_speed_up()),
        ratio(row.speed_up()),
    )
}

/// What is left of a call without waiting for ranks that come later, where that is much of either's time.
fn without_waiting(row: &Compared) -> Option<String> {
    let shares = [row.ours.waiting_share()?, row.baseline.waiting_share()?];
    let [ours_ns, baseline_ns] = [row.ours.transfer_ns()?, row.baseline.transfer_ns()?];
    (shares.into_iter().any(|share| share >= WAITING_TOLD)).then(|| {
        format!(
            "{} of {}: {} of the time is waiting for later ranks, {} in the baseline;\n  \
             without it {} us and {} us, {} times as fast",
            row.kind.name(),
            size(row.from_bytes),
            percent(shares[0]),
            percent(shares[1]),
            us(ours_ns),
            us(baseline_ns),
            ratio((ours_ns > 0.0).then(|| baseline_ns / ours_ns)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_report::CollectiveKind::{Allreduce, Barrier};
    use tributary_report::{PathTaken, TimeCells};

    fn report(calls: u64, path: PathTaken, duration_ns: u64) -> Report {
        let cells = TimeCells::new();
        for _ in 0..calls {
            cells.add(Allreduce, path, 4096, duration_ns);
        }
        cells.add(Barrier, path, 0, 50);
        Report { times: Some(cells.times(1_000_000)), ..Report::default() }
    }

    /// So many of a hundred nanoseconds that were compared are waiting.
    fn set_waiting(report: &mut Report, path: PathTaken, waiting_ns: u64) {
        let times = report.times.as_mut().unwrap();
        let paths = times.collectives.get_mut(&Allreduce).unwrap();
        let measured = paths.get_mut(&path).unwrap().get_mut(&4096).unwrap();
        (measured.compared_ns, measured.waiting_ns) = (100, waiting_ns);
    }

    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn times_are_a_table() {
        let mut report = report(10, PathTaken::InTree, 2_000);
        set_waiting(&mut report, PathTaken::InTree, 75);
        let text = text(report.times.as_ref().unwrap());
        let lines: Vec<String> = text.lines().map(words).collect();
        assert!(lines[0].ends_with("(2.0%), summed over 1 ranks"), "{}", lines[0]);
        assert_eq!(lines[1], "collective path size calls total s mean us waiting p50 us p99 us");
        assert_eq!(lines[2], "allreduce in_tree 4-8 KiB 10 0.000 2.00 75% 1.92 1.92");
        assert_eq!(lines[3], "barrier in_tree 0 B 1 0.000 0.050 - 0.052 0.052");
    }

    #[test]
    fn a_baseline_gives_speed_up_and_a_warning_if_calls_differ() {
        let ours = report(10, PathTaken::InHost, 1_000);
        let text = comparison(&ours, &report(10, PathTaken::PassedThrough, 4_000));
        let row = text.lines().find(|line| line.starts_with("allreduce")).unwrap();
        assert_eq!(words(row), "allreduce 4-8 KiB 0.960 3.84 4.00 1.00 4.00 4.00");
        assert!(!text.contains("different calls") && !text.contains("long calls"), "{text}");
        let widest = text.lines().skip(2).map(str::len).max();
        assert!(widest <= Some(80), "{text}");
        let other = comparison(&ours, &report(11, PathTaken::PassedThrough, 4_000));
        assert!(other.contains("different calls"), "{other}");
    }

    #[test]
    fn a_comparison_tells_what_is_left_without_waiting() {
        let (mut ours, mut plain) =
            (report(10, PathTaken::InHost, 4_000), report(10, PathTaken::PassedThrough, 5_000));
        set_waiting(&mut ours, PathTaken::InHost, 75);
        assert!(!comparison(&ours, &plain).contains("waiting"), "one alone is no comparison");
        set_waiting(&mut plain, PathTaken::PassedThrough, 60);
        let text = comparison(&ours, &plain);
        let told = "allreduce of 4-8 KiB: 75% of the time is waiting for later ranks, 60% in the baseline;\n  \
                    without it 1.00 us and 2.00 us, 2.00 times as fast\n";
        assert!(text.contains(told), "{text}");
        set_waiting(&mut ours, PathTaken::InHost, 20);
        set_waiting(&mut plain, PathTaken::PassedThrough, 24);
        assert!(!comparison(&ours, &plain).contains("waiting"));
    }

    #[test]
    fn a_mean_that_long_calls_make_is_told_with_the_median() {
        let (ours, mut plain) =
            (report(10, PathTaken::InTree, 3_000), report(9, PathTaken::PassedThrough, 1_000));
        let long = report(1, PathTaken::PassedThrough, 90_000);
        plain.times.as_mut().unwrap().merge(long.times.as_ref().unwrap());
        let text = comparison(&ours, &plain);
        let told = "allreduce of 4-8 KiB: 0.341 times as fast by the median, 3.30 by the mean,";
        assert!(text.lines().any(|line| line == told), "{text}");
    }
}
