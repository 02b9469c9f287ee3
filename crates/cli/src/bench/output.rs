//! Rows for people (a table at the end, a progress bar meanwhile) or for machines (one JSON object
//! a line, as soon as it is known).

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use tributary_bench::{Collective, Overlap, Row, Summary, Work};
use tributary_views::tables;

use super::plan::Plan;
use crate::flags::PathFlag;

/// Writes the rows.
pub(super) struct Output {
    json: bool,
    work: Work,
    ranks: u32,
    hosts: Vec<(PathFlag, u32)>,
    rows: Vec<(PathFlag, Row)>,
    bar: ProgressBar,
}

const COLUMNS: [&str; 14] = [
    "algo",
    "path",
    "size_bytes",
    "avg_us",
    "min",
    "q1",
    "median",
    "q3",
    "max",
    "min",
    "q1",
    "median",
    "q3",
    "max",
];

impl Output {
    pub(super) fn new(plan: &Plan) -> Self {
        let looked_at = io::stderr().is_terminal() && !plan.json;
        let bar =
            if looked_at { ProgressBar::new(plan.operations()) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} operations  {msg}");
        bar.set_style(style.expect("the template is constant and valid"));
        Self {
            json: plan.json,
            work: plan.work.clone(),
            ranks: plan.ranks,
            hosts: plan.paths.iter().map(|&path| (path, plan.hosts_of(path))).collect(),
            rows: Vec::new(),
            bar,
        }
    }

    /// Shows which path and size is being timed.
    pub(super) fn progress_to(&self, path: PathFlag, step: usize) {
        if let Some(step) = self.work.steps.get(step) {
            self.bar.set_message(format!("{}: {} bytes", path.name(), step.size_bytes));
        }
    }

    /// Takes a row.
    pub(super) fn row(&mut self, path: PathFlag, row: Row) -> io::Result<()> {
        self.bar.inc(row.step.iterations);
        let done = self.rows.iter().filter(|(known, _)| *known == path).count() + 1;
        self.progress_to(path, done);
        if self.json {
            writeln!(io::stdout().lock(), "{}", self.line(path, &row))?;
        }
        self.rows.push((path, row));
        Ok(())
    }

    /// Clears the progress bar: an error message follows.
    pub(super) fn abandon(&self) {
        self.bar.finish_and_clear();
    }

    /// Writes the table, unless rows are JSON.
    pub(super) fn finish(self) -> io::Result<()> {
        self.bar.finish_and_clear();
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "# {}", self.title())?;
        writeln!(
            out,
            "# times in us; columns 5-9: quartiles over operations of the mean over ranks;"
        )?;
        writeln!(out, "# columns 10-14: quartiles over ranks of the mean over operations")?;
        writeln!(out, "{}", self.table())?;
        for (path, row) in &self.rows {
            if let Some(overlap) = &row.overlap {
                let Overlap { pure_us, compute_us, overall_us } = overlap;
                writeln!(
                    out,
                    "# {} {} bytes: alone {pure_us:.2}, computation {compute_us:.2}, together \
                     {overall_us:.2}: overlap {:.1}%",
                    path.name(),
                    row.step.size_bytes,
                    overlap.percent()
                )?;
            }
        }
        Ok(())
    }

    fn title(&self) -> String {
        let Work { collective, datatype, operator, .. } = &self.work;
        let what = match collective {
            Collective::Barrier => collective.name().to_owned(),
            Collective::Bcast => format!("{} of {}", collective.name(), datatype.name()),
            _ => format!("{} {} of {}", collective.name(), operator.name(), datatype.name()),
        };
        let checked = if self.work.verify { "results verified" } else { "results not verified" };
        let hosts: Vec<String> =
            self.hosts.iter().map(|(path, hosts)| format!("{} {hosts}", path.name())).collect();
        format!("{what}, {} processes, hosts: {}; {checked}", self.ranks, hosts.join(", "))
    }

    fn table(&self) -> String {
        let mut table = tables::plain(COLUMNS);
        for (path, row) in &self.rows {
            let Summary { average_us, operations: o, ranks: r } = row.summary;
            let times = [
                average_us, o.min, o.q1, o.median, o.q3, o.max, r.min, r.q1, r.median, r.q3, r.max,
            ];
            let size_bytes = row.step.size_bytes.to_string();
            let words = [path.name().to_owned(), row.carried.clone(), size_bytes];
            table.add_row(words.into_iter().chain(times.map(|time| format!("{time:.2}"))));
        }
        tables::right(&mut table, 2..COLUMNS.len());
        tables::text(&table)
    }

    fn line(&self, path: PathFlag, row: &Row) -> serde_json::Value {
        let Summary { average_us, operations, ranks } = row.summary;
        let hosts = self.hosts.iter().find(|(known, _)| *known == path).map(|(_, hosts)| *hosts);
        let mut line = json!({
            "collective": self.work.collective.name(),
            "algo": path.name(),
            "path": row.carried,
            "procs": self.ranks,
            "hosts": hosts,
            "dtype": self.work.datatype.name(),
            "op": self.work.operator.name(),
            "size_bytes": row.step.size_bytes,
            "iterations": row.step.iterations,
            "verified": self.work.verify,
            "avg_us": average_us,
            "op_min_us": operations.min,
            "op_q1_us": operations.q1,
            "op_median_us": operations.median,
            "op_q3_us": operations.q3,
            "op_max_us": operations.max,
            "rank_min_us": ranks.min,
            "rank_q1_us": ranks.q1,
            "rank_median_us": ranks.median,
            "rank_q3_us": ranks.q3,
            "rank_max_us": ranks.max,
        });
        if let Some(overlap) = &row.overlap {
            line["pure_us"] = overlap.pure_us.into();
            line["compute_us"] = overlap.compute_us.into();
            line["overall_us"] = overlap.overall_us.into();
            line["overlap_percent"] = overlap.percent().into();
        }
        line
    }
}
