//! Rows for people, in 80 columns, or for machines, one JSON object a line.

use std::io::{self, Write};

use tributary_measuring::{Library, Outcome, Ratio, Row, library_name};

use super::plan::Plan;

/// Writes the rows.
pub(super) fn write(plan: &Plan, facts: &Outcome, rows: &[Row]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if plan.json {
        for row in rows {
            let mut line = row.json();
            line["ranks"] = facts.ranks().into();
            line["hosts"] = facts.hosts().into();
            writeln!(out, "{line}")?;
        }
        return Ok(());
    }
    writeln!(
        out,
        "# {} ranks on {} hosts, {}, sums of f32; every result is checked",
        facts.ranks(),
        facts.hosts(),
        library_name(facts.library())
    )?;
    writeln!(out, "# times in us, of the slowest rank; bandwidths in MB/s of 10^6 bytes")?;
    let mut heading = String::new();
    for row in rows {
        let place = if row.case.in_place { ", in place" } else { "" };
        let wanted = format!("{}{place}", row.case.name());
        if wanted != heading {
            writeln!(out, "\n{wanted}\n{HEADER}")?;
            heading = wanted;
        }
        writeln!(out, "{}", text_of(row))?;
    }
    if rows.iter().any(|row| row.ratio.is_some()) {
        writeln!(
            out,
            "\nplain MPI takes, by the medians of each round; the median round (least to most):"
        )?;
        for row in rows {
            if let Some(Ratio { median, least, greatest }) = row.ratio {
                let (name, size) = (row.case.name(), row.size_bytes);
                let times = "times as long";
                writeln!(
                    out,
                    "{name:>16}{size:>11} {median:>8.2} {times} ({least:.2} to {greatest:.2})"
                )?;
            }
        }
    }
    Ok(())
}

const HEADER: &str =
    "with        bytes    mean      q1  median      q3     p99    alg    bus   wrong";

fn text_of(row: &Row) -> String {
    let with = match row.library {
        Library::Ours => "ours",
        Library::Plain => "plain",
    };
    let times = &row.times;
    let bandwidth = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
    let mut text = format!("{with:<6}{:>11}", row.size_bytes);
    for us in [times.mean, times.q1, times.median, times.q3, times.p99] {
        text += &format!("{:>8}", short(us));
    }
    let (algorithm, bus) = (bandwidth(row.bandwidth.algorithm), bandwidth(row.bandwidth.bus));
    text + &format!("{algorithm:>7}{bus:>7}{:>8}", row.wrong)
}

/// A number in at most six characters, up to a million.
fn short(value: f64) -> String {
    match value {
        ..1.0 => format!("{value:.3}"),
        ..100.0 => format!("{value:.2}"),
        ..10_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        let shown = [0.04, 1.0, 99.5, 123.44, 9999.0, 123_456.7].map(short);
        assert_eq!(shown, ["0.040", "1.00", "99.50", "123.4", "9999.0", "123457"]);
    }
}
