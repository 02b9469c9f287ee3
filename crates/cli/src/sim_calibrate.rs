//! `tributary sim calibrate` and `sensitivity`: how well the simulator's constants are founded.

use std::io::{self, Write};
use std::process::ExitCode;

use tributary_sim::calibration;
use tributary_sim::figure::Effort;

use crate::flags::{CalibrateFlags, CalibrationEffort, SensitivityFlags};
use crate::sim::{print_table, watched};

/// Fits the constants, and writes the errors, the constants and their means.
pub(crate) fn calibrate(flags: &CalibrateFlags) -> anyhow::Result<ExitCode> {
    let effort = effort(&flags.effort);
    let found = watched("calibrate", |progress| {
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

/// Writes what each constant moves.
pub(crate) fn sensitivity(flags: &SensitivityFlags) -> anyhow::Result<ExitCode> {
    let effort = effort(&flags.effort);
    let table = watched("sensitivity", |progress| calibration::sensitivity(&effort, progress))?;
    print_table(&table, flags.effort.csv)
}

fn effort(flags: &CalibrationEffort) -> Effort {
    Effort { seed: flags.seed, operations: flags.operations }
}
