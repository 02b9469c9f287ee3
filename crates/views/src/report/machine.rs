//! A report for machines: its own fields, with derived figures beside the times.

use serde_json::{Value, json};
use tributary_report::{Bounds, Compared, Measured, Report, Times, compare};

/// The report's counts; its times as rows; and the comparison, if there is a baseline.
#[must_use]
pub fn json(report: &Report, baseline: Option<&Report>) -> Value {
    let mut whole = serde_json::to_value(report).unwrap_or_default();
    whole["times"] = report.times.as_ref().map_or(Value::Null, times);
    if let Some(baseline) = baseline {
        whole["baseline"] = json!({
            "in_host": baseline.in_host,
            "in_tree": baseline.in_tree,
            "direct": baseline.direct,
            "passed_through": baseline.passed_through,
            "times": baseline.times.as_ref().map_or(Value::Null, times),
        });
        if let (Some(ours), Some(theirs)) = (&report.times, &baseline.times) {
            whole["compared"] = compare(ours, theirs).iter().map(comparison_row).collect();
        }
    }
    whole
}

fn times(times: &Times) -> Value {
    let rows: Vec<Value> = times
        .rows()
        .map(|(kind, path, from_bytes, measured)| {
            let mut row = figures(measured);
            row["collective"] = kind.name().into();
            row["path"] = path.name().into();
            row["from_bytes"] = from_bytes.into();
            row
        })
        .collect();
    json!({
        "ranks": times.ranks,
        "program_ns": times.program_ns,
        "collectives_ns": times.collectives_ns(),
        "not_measured": times.not_measured,
        "rows": rows,
    })
}

fn figures(measured: &Measured) -> Value {
    let Measured { calls, total_ns, min_ns, max_ns, durations, compared_ns, waiting_ns } = measured;
    json!({
        "calls": calls,
        "total_ns": total_ns,
        "mean_ns": measured.mean_ns(),
        "min_ns": min_ns,
        "max_ns": max_ns,
        "p50_ns": pair(measured.quantile(0.5)),
        "p99_ns": pair(measured.quantile(0.99)),
        "durations": durations,
        "compared_ns": compared_ns,
        "waiting_ns": waiting_ns,
        "waiting_share": measured.waiting_share(),
    })
}

/// A quantile's bucket: from, and the shortest beyond it.
fn pair(bounds: Option<Bounds>) -> Option<[u64; 2]> {
    bounds.map(|bounds| [bounds.from_ns, bounds.to_ns])
}

fn comparison_row(row: &Compared) -> Value {
    let paths: Vec<&str> = row.paths.iter().map(|path| path.name()).collect();
    json!({
        "collective": row.kind.name(),
        "from_bytes": row.from_bytes,
        "paths": paths,
        "calls": row.ours.calls,
        "mean_ns": row.ours.mean_ns(),
        "baseline_calls": row.baseline.calls,
        "baseline_mean_ns": row.baseline.mean_ns(),
        "p50_ns": pair(row.ours.quantile(0.5)),
        "baseline_p50_ns": pair(row.baseline.quantile(0.5)),
        "speed_up": row.speed_up(),
        "median_speed_up": row.median_speed_up(),
        "mean_disagrees": row.mean_disagrees(),
        "saved_ns": row.saved_ns(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_report::CollectiveKind;
    use tributary_report::{PathTaken, TimeCells};

    fn report(path: PathTaken, duration_ns: u64) -> Report {
        let cells = TimeCells::new();
        cells.add(CollectiveKind::Scan, path, 64, duration_ns);
        Report { in_host: 3, times: Some(cells.times(10_000)), ..Report::default() }
    }

    #[test]
    fn counts_stay_and_figures_are_derived() {
        let ours = report(PathTaken::InHost, 700);
        let value = json(&ours, Some(&report(PathTaken::PassedThrough, 1400)));
        assert_eq!(value["in_host"], 3);
        let row = &value["times"]["rows"][0];
        assert_eq!((&row["collective"], &row["path"]), (&json!("scan"), &json!("in_host")));
        assert_eq!((&row["from_bytes"], &row["p50_ns"]), (&json!(64), &json!([640, 768])));
        assert_eq!(value["compared"][0]["speed_up"], 2.0);
        assert_eq!(value["compared"][0]["median_speed_up"], 2.0);
        assert_eq!(value["compared"][0]["baseline_p50_ns"], json!([1280, 1536]));
        assert_eq!(value["baseline"]["times"]["collectives_ns"], 1400);
        assert_eq!(json(&Report::default(), None)["times"], Value::Null);
    }
}
