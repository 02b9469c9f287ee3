//! `tributary sim calibrate` and `sensitivity`: how well the simulator's constants are founded.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use tributary_figures::Effort;
use tributary_figures::calibration;

use crate::flags::{CalibrateFlags, CalibrationEffort, FigureFlags, SensitivityFlags};
use crate::sim::{print_table, watch_progress};

/// Most operations for each observation, beside figures: a fit simulates them many times.
const OPERATIONS: u32 = 6;

/// Fits the constants, and writes the errors, the constants and their means.
pub(crate) fn calibrate(flags: &CalibrateFlags) -> anyhow::Result<ExitCode> {
    let effort = effort(&flags.effort);
    let found = watch_progress("calibrate", |progress| {
        calibration::calibrate(&effort, flags.leave_one_out, progress)
    })?;
    print_table(&found.rows, flags.effort.csv)?;
    writeln!(io::stdout().lock())?;
    print_table(&found.constants, flags.effort.csv)?;
    if !flags.effort.csv {
        writeln!(io::stdout().lock(), "\n{}", found.summary.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// With all figures: writes the error of every published number, as shipped, fitted again and, if wanted, left
/// out of the fit; as `calibration.csv` too, where the figures go.
pub(crate) fn beside_figures(flags: &FigureFlags) -> anyhow::Result<ExitCode> {
    if !flags.all {
        return Ok(ExitCode::SUCCESS);
    }
    let operations = flags.operations.min(OPERATIONS);
    let effort = Effort { seed: flags.seed, operations };
    let found = watch_progress("calibration", |progress| {
        calibration::calibrate(&effort, flags.leave_one_out, progress)
    })?;
    writeln!(
        io::stdout().lock(),
        "calibration: errors of the published numbers that have a known setting"
    )?;
    print_table(&found.rows, false)?;
    writeln!(io::stdout().lock(), "\n{}", found.summary.join("\n"))?;
    if let Some(directory) = &flags.out {
        let path = directory.join("calibration.csv");
        std::fs::write(&path, found.rows.csv())
            .with_context(|| format!("file {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes what each constant moves.
pub(crate) fn sensitivity(flags: &SensitivityFlags) -> anyhow::Result<ExitCode> {
    let effort = effort(&flags.effort);
    let table =
        watch_progress("sensitivity", |progress| calibration::sensitivity(&effort, progress))?;
    print_table(&table, flags.effort.csv)
}

fn effort(flags: &CalibrationEffort) -> Effort {
    Effort { seed: flags.seed, operations: flags.operations }
}
