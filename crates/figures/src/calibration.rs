//! Calibration of the machine of the published tables: how well its few fitted constants explain what was
//! published, and how well they predict what they were not fitted to.
//!
//! Owns the observations and the fit. The preset says which constants are fitted; see
//! [`Tunable`].

mod fit;
mod observation;

use rayon::prelude::*;

use crate::sweep::{Effort, FigureError, Progress};
use observation::{Observation, observations};
use tributary_charts::{Cell, Table};
use tributary_sim::preset::{FittedConstant, Tunable};

/// The preset that is calibrated.
const PRESET: &str = "edr-sharp";

/// Factor by which the sensitivity table raises and lowers a constant.
const STEP: f64 = 0.2;

/// A change that counts as none, in percent.
const NOTHING_PERCENT: f64 = 0.5;

/// What a calibration shows.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Each observation with its error: as shipped, fitted again, and left out of the fit.
    pub rows: Table,
    /// Each constant as shipped and fitted again.
    pub constants: Table,
    /// The mean errors, in words.
    pub summary: Vec<String>,
}

/// The constants, the observations, and how much is simulated for each.
struct Machine<'a> {
    tunable: Tunable,
    constants: Vec<FittedConstant>,
    observations: Vec<Observation>,
    effort: &'a Effort,
}

impl<'a> Machine<'a> {
    fn new(effort: &'a Effort) -> Result<Self, FigureError> {
        let tunable = Tunable::read_shipped(PRESET)?;
        let constants = tunable.fitted_constants();
        Ok(Self { tunable, constants, observations: observations(), effort })
    }

    fn shipped_values(&self) -> Vec<f64> {
        self.constants.iter().map(|constant| constant.value).collect()
    }

    /// The simulated value of every observation, with these values of the constants.
    fn values(&self, constants: &[f64]) -> Result<Vec<f64>, FigureError> {
        let keys = self.constants.iter().map(|constant| constant.key.as_str());
        let values: Vec<_> = keys.zip(constants.iter().copied()).collect();
        let preset = self.tunable.with(&values)?;
        self.observations.par_iter().map(|row| row.simulate(&preset, self.effort)).collect()
    }

    /// The error of every observation, in percent.
    fn errors(&self, constants: &[f64]) -> Result<Vec<f64>, FigureError> {
        let rows = self.observations.iter().zip(self.values(constants)?);
        Ok(rows.map(|(row, value)| (value / row.published - 1.0) * 100.0).collect())
    }

    /// The best constants without one observation, or with all. They start from the shipped values, which
    /// have seen the observation, so the fit has to forget it.
    fn fit(&self, left_out: Option<usize>) -> Result<Vec<f64>, FigureError> {
        fit::least_squares(&self.shipped_values(), left_out, |constants| self.errors(constants))
    }
}

/// Fits the constants to all observations; and, if asked, to all but one, for each of them.
///
/// # Errors
/// [`FigureError`].
pub fn calibrate(
    effort: &Effort,
    leave_one_out: bool,
    progress: &Progress,
) -> Result<Calibration, FigureError> {
    let machine = Machine::new(effort)?;
    let count = machine.observations.len();
    progress.expect(1 + if leave_one_out { count as u64 } else { 0 });
    let as_shipped = machine.errors(&machine.shipped_values())?;
    let again = machine.fit(None)?;
    let fitted_again = machine.errors(&again)?;
    progress.advance();
    let left_out = |row: usize| {
        let error = machine.errors(&machine.fit(Some(row))?)?[row];
        progress.advance();
        Ok(error)
    };
    let left_out: Option<Vec<f64>> = leave_one_out
        .then(|| (0..count).into_par_iter().map(left_out).collect::<Result<_, FigureError>>())
        .transpose()?;
    let mut summary = vec![
        format!("{} fitted constants, {count} observations", machine.constants.len()),
        format!("mean error as shipped {:.1} %", mean(&as_shipped)),
        format!("mean error fitted again {:.1} %", mean(&fitted_again)),
    ];
    if let Some(errors) = &left_out {
        summary.push(format!("mean error of an observation left out {:.1} %", mean(errors)));
    }
    let rows = rows(&machine.observations, &as_shipped, &fitted_again, left_out.as_deref());
    Ok(Calibration { rows, constants: constants(&machine.constants, &again), summary })
}

/// For each fitted constant, raised and lowered by a fifth: which observation moves most, and how much.
///
/// # Errors
/// [`FigureError`].
pub fn sensitivity(effort: &Effort, progress: &Progress) -> Result<Table, FigureError> {
    let machine = Machine::new(effort)?;
    let (fitted, known) = (&machine.constants, &machine.observations);
    let base = machine.values(&machine.shipped_values())?;
    progress.expect(fitted.len() as u64);
    let mut table = Table::new(&[
        "constant",
        "fitted_to",
        "moves_most",
        "at_minus_20_percent",
        "at_plus_20_percent",
        "others_moved",
    ]);
    for (index, constant) in fitted.iter().enumerate() {
        let changed = |factor: f64| -> Result<Vec<f64>, FigureError> {
            let mut values = machine.shipped_values();
            values[index] *= factor;
            let moved = machine.values(&values)?;
            Ok(moved.iter().zip(&base).map(|(to, from)| (to / from - 1.0) * 100.0).collect())
        };
        let (less, more) = (changed(1.0 - STEP)?, changed(1.0 + STEP)?);
        let size = |row: usize| less[row].abs().max(more[row].abs());
        let most = (0..known.len()).max_by(|one, other| size(*one).total_cmp(&size(*other)));
        let most = most.expect("there are observations");
        let moved = (0..known.len()).filter(|row| *row != most && size(*row) > NOTHING_PERCENT);
        table.add(vec![
            Cell::Text(constant.key.clone()),
            Cell::Text(constant.observation.clone()),
            Cell::Text(known[most].name.clone()),
            Cell::Number(less[most], 1),
            Cell::Number(more[most], 1),
            Cell::Whole(moved.count() as u64),
        ]);
        progress.advance();
    }
    Ok(table)
}

fn rows(
    known: &[Observation],
    as_shipped: &[f64],
    fitted_again: &[f64],
    left_out: Option<&[f64]>,
) -> Table {
    let mut table = Table::new(&[
        "observation",
        "published",
        "shipped_percent",
        "fitted_percent",
        "left_out_percent",
    ]);
    for (index, row) in known.iter().enumerate() {
        table.add(vec![
            Cell::Text(row.name.clone()),
            Cell::Number(row.published, 3),
            Cell::Number(as_shipped[index], 1),
            Cell::Number(fitted_again[index], 1),
            left_out.map_or(Cell::Empty, |errors| Cell::Number(errors[index], 1)),
        ]);
    }
    table
}

fn constants(fitted: &[FittedConstant], again: &[f64]) -> Table {
    let mut table = Table::new(&["constant", "unit", "shipped", "fitted", "fitted_to"]);
    for (constant, value) in fitted.iter().zip(again) {
        table.add(vec![
            Cell::Text(constant.key.clone()),
            Cell::Text(constant.unit.clone()),
            Cell::Number(constant.value, 4),
            Cell::Number(*value, 4),
            Cell::Text(constant.observation.clone()),
        ]);
    }
    table
}

/// The mean of sizes, in percent.
fn mean(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len().max(1) as f64
}
