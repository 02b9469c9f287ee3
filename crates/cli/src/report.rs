//! `tributary report`: what a report tells, as text, JSON or a drawing, beside a baseline if one is given.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use tributary_client::report::{REPORT_BYTES_MAX, Report, Times, output};

use tributary_views::report as views;
use tributary_wire::text::printable_json;

use crate::flags::ReportFlags;
use crate::texts;
use crate::usage::UsageError;

/// Shows a report.
pub(crate) fn report(flags: &ReportFlags) -> anyhow::Result<ExitCode> {
    let report = read("FILE", &flags.file)?;
    let baseline = flags.baseline.as_deref().map(|path| read("--baseline", path)).transpose()?;
    if let (Some(baseline), Some(path)) = (&baseline, &flags.baseline) {
        times_of("FILE", &flags.file, &report)?;
        times_of("--baseline", path, baseline)?;
    }
    if let Some(target) = &flags.plot {
        let times = times_of("FILE", &flags.file, &report)?;
        let baseline = baseline.as_ref().and_then(|baseline| baseline.times.as_ref());
        let drawing = views::svg(times, baseline)?;
        output::write(target, drawing.as_bytes(), 0o666)
            .with_context(|| format!("--plot {}", target.display()))?;
    }
    let mut out = io::stdout().lock();
    if flags.json {
        let json = format!("{:#}", views::json(&report, baseline.as_ref()));
        writeln!(out, "{}", printable_json(&json))?;
    } else {
        writeln!(out, "{}", views::text(&report))?;
        if let Some(baseline) = &baseline {
            writeln!(out, "\n{}", views::comparison(&report, baseline))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read(option: &str, path: &Path) -> Result<Report, UsageError> {
    let refused = |why: &dyn std::fmt::Display| {
        let allowed = format!("a file of tributary run --report is allowed: {why}");
        UsageError::new(option, path.to_string_lossy(), allowed)
    };
    let text = output::read(path, REPORT_BYTES_MAX).map_err(|error| refused(&error))?;
    let report = serde_json::from_slice(&text).map_err(|error| refused(&error))?;
    texts::printable_of(&report).map_err(|error| refused(&error))
}

/// The times of a report that must have some.
fn times_of<'a>(option: &str, path: &Path, report: &'a Report) -> Result<&'a Times, UsageError> {
    let allowed = "a report with times is allowed; without TRIBUTARY_TIMES=off it gets them";
    let times = report.times.as_ref().filter(|times| times.rows().next().is_some());
    times.ok_or_else(|| UsageError::new(option, path.to_string_lossy(), allowed))
}
