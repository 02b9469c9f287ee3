//! The simulator against the real thing: a preset from what was measured on a machine, and what it
//! predicts for operations that were timed there.
//!
//! Owns the preset's text and the comparison. What was timed comes from outside: nothing here starts a
//! process. No constant is fitted to a row: each was measured before, alone, without a collective.

use core::fmt::Write as _;

use tributary_algorithms::Algorithm;

use crate::figure::{Cell, Table};
use crate::machine::{Joint, MachineError, Setting};
use crate::preset::{self, Preset, PresetError};

/// Where a measured constant comes from, as the preset says it.
const SOURCE: &str = "measured by tributary tune --measure";

/// How far a prediction may be off, in percent, to count as close.
const ALLOWED_PERCENT: f64 = 20.0;

/// Most that the product's code may take for a frame.
const FRAME_NS_MAX: f64 = 20_000.0;
/// Halvings of that, down to 5 ns.
const FRAME_HALVINGS: u32 = 12;
/// Simulated barriers of each.
const FRAME_OPERATIONS: u32 = 100;

/// Why nothing is predicted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The constants make no preset.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// The machine can't be simulated.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// A constant of the preset: its table, name, unit, and measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredConstant {
    /// The preset's table.
    pub table: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// The unit that the preset asks for.
    pub unit: &'static str,
    /// The value, in that unit.
    pub value: f64,
}

/// The text of a preset with these constants over `loopback`'s. It can be kept and read again.
#[must_use]
pub fn preset_text(machine: &str, constants: &[MeasuredConstant]) -> String {
    let mut text = String::from("name = \"this-machine\"\n");
    let about = format!("processes and nodes on {machine}, over TCP on its loopback interface");
    writeln!(text, "about = {}\nbase = \"loopback\"", toml::Value::String(about))
        .expect("strings take all");
    let mut tables: Vec<&str> = constants.iter().map(|constant| constant.table).collect();
    tables.dedup();
    for table in tables {
        writeln!(text, "\n[{table}]").expect("strings take all");
        for MeasuredConstant { name, unit, value, .. } in
            constants.iter().filter(|constant| constant.table == table)
        {
            writeln!(
                text,
                "{name} = {{ value = {value:.4}, unit = \"{unit}\", source = \"{SOURCE}\" }}"
            )
            .expect("strings take all");
        }
    }
    text
}

/// The constants with one more: what the product's own code takes for a frame, at each end.
///
/// It is what a barrier between two ranks of one core took beyond its system calls, and the only
/// constant that comes from a collective; barriers are not among what is predicted.
///
/// # Errors
/// [`PredictError`].
pub fn with_frame(
    machine: &str,
    mut constants: Vec<MeasuredConstant>,
    barrier_ns: f64,
) -> Result<Vec<MeasuredConstant>, PredictError> {
    let frame = |value| MeasuredConstant { table: "machine", name: "frame", unit: "ns", value };
    let one_core = MeasuredConstant { table: "machine", name: "cores", unit: "1", value: 1.0 };
    let simulated_ns = |frame_ns: f64| -> Result<f64, PredictError> {
        let mut tried: Vec<_> =
            constants.iter().copied().filter(|constant| constant.name != "cores").collect();
        tried.insert(0, frame(frame_ns));
        tried.insert(0, one_core);
        let preset = read(&preset_text(machine, &tried))?;
        let joint = Joint::Mesh { algorithm: Algorithm::RecursiveDoubling };
        let samples =
            Setting { endpoints: 2, joint, seed: 1 }.barrier(&preset, FRAME_OPERATIONS)?;
        Ok(samples.summary().operations.q2 * 1e3)
    };
    let (mut low_ns, mut high_ns) = (0.0, FRAME_NS_MAX);
    for _ in 0..FRAME_HALVINGS {
        let middle_ns = (low_ns + high_ns) / 2.0;
        if simulated_ns(middle_ns)? < barrier_ns {
            low_ns = middle_ns;
        } else {
            high_ns = middle_ns;
        }
    }
    // Constants of one table stand together.
    constants.insert(0, frame(low_ns));
    Ok(constants)
}

/// Reads such a text.
///
/// # Errors
/// [`PresetError`], if a constant is none that the preset has, or has another unit.
pub fn read(text: &str) -> Result<Preset, PresetError> {
    preset::read(text)
}

/// An operation that was timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Processes, each a host to the others.
    pub endpoints: u32,
    /// What joined them.
    pub joint: Joint,
    /// Length of the vector.
    pub len_bytes: usize,
    /// The median over operations of the mean over processes, in microseconds.
    pub measured_us: f64,
}

/// The same, predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// What was timed.
    pub timed: Timed,
    /// The median that the simulator gives, in microseconds.
    pub predicted_us: f64,
}

impl Predicted {
    /// The relative error, in percent; positive where the simulator is too slow.
    #[must_use]
    pub fn error_percent(&self) -> f64 {
        (self.predicted_us / self.timed.measured_us - 1.0) * 100.0
    }

    /// Whether it is as close as a prediction is meant to be.
    #[must_use]
    pub fn is_close(&self) -> bool {
        self.error_percent().abs() <= ALLOWED_PERCENT
    }
}

/// Predicts every row from the preset alone.
///
/// # Errors
/// [`MachineError`].
pub fn predict(
    preset: &Preset,
    rows: &[Timed],
    operations: u32,
    seed: u64,
) -> Result<Vec<Predicted>, MachineError> {
    rows.iter()
        .map(|&timed| {
            let setting = Setting { endpoints: timed.endpoints, joint: timed.joint, seed };
            let samples = setting.allreduce(preset, timed.len_bytes, operations)?;
            Ok(Predicted { timed, predicted_us: samples.summary().operations.q2 })
        })
        .collect()
}

/// The rows for people.
#[must_use]
pub fn table(rows: &[Predicted]) -> Table {
    let mut table = Table::new(&[
        "way",
        "endpoints",
        "size_bytes",
        "measured_us",
        "predicted_us",
        "error_percent",
        "within_20_percent",
    ]);
    for row in rows {
        table.add(vec![
            Cell::Text(way(row.timed.joint).to_owned()),
            Cell::Whole(row.timed.endpoints.into()),
            Cell::Whole(row.timed.len_bytes as u64),
            Cell::Number(row.timed.measured_us, 2),
            Cell::Number(row.predicted_us, 2),
            Cell::Number(row.error_percent(), 1),
            Cell::Text(if row.is_close() { "yes" } else { "NO" }.to_owned()),
        ]);
    }
    table
}

/// How many rows are as close as they are meant to be, in words.
#[must_use]
pub fn verdict(rows: &[Predicted]) -> String {
    let close = rows.iter().filter(|row| row.is_close()).count();
    let largest = rows.iter().map(|row| row.error_percent().abs()).fold(0.0, f64::max);
    let met = if close == rows.len() { "met" } else { "MISSED" };
    let of = rows.len();
    format!(
        "Within {ALLOWED_PERCENT:.0} %: {close} of {of} rows, largest error {largest:.1} %: {met}"
    )
}

/// What a table calls the way.
#[must_use]
pub fn way(joint: Joint) -> &'static str {
    match joint {
        Joint::Tree { .. } => "tree",
        Joint::Mesh { .. } => "mesh",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Timed> {
        let row = |joint| Timed { endpoints: 4, joint, len_bytes: 8, measured_us: 10.0 };
        let algorithm = tributary_algorithms::Algorithm::RecursiveDoubling;
        vec![row(Joint::Tree { leaves: 2 }), row(Joint::Mesh { algorithm })]
    }

    fn constant(name: &'static str, unit: &'static str, value: f64) -> MeasuredConstant {
        MeasuredConstant { table: "machine", name, unit, value }
    }

    #[test]
    fn predictions_follow_the_constants_and_not_what_was_timed() {
        let predicted_us = |send_ns: f64, measured_us: f64| -> Vec<f64> {
            let text = preset_text("a \"test\"", &[constant("send", "ns", send_ns)]);
            let timed: Vec<_> =
                rows().into_iter().map(|row| Timed { measured_us, ..row }).collect();
            let rows = predict(&read(&text).unwrap(), &timed, 20, 1).unwrap();
            rows.iter().map(|row| row.predicted_us).collect()
        };
        let (cheap, dear) = (predicted_us(1_000.0, 10.0), predicted_us(3_000.0, 10.0));
        assert!(cheap.iter().zip(&dear).all(|(cheap, dear)| cheap < dear), "{cheap:?} {dear:?}");
        assert_eq!(cheap, predicted_us(1_000.0, 99.0));
    }

    /// What the product's code takes is found again from the barrier that has it.
    #[test]
    fn the_barrier_tells_what_a_frame_takes() {
        let preset =
            read(&preset_text("x", &[constant("cores", "1", 1.0), constant("frame", "ns", 700.0)]));
        let joint = rows()[1].joint;
        let setting = Setting { endpoints: 2, joint, seed: 1 };
        let samples = setting.barrier(&preset.unwrap(), FRAME_OPERATIONS).unwrap();
        let barrier_ns = samples.summary().operations.q2 * 1e3;
        let found = with_frame("x", vec![constant("cores", "1", 2.0)], barrier_ns).unwrap();
        assert!((found[0].value - 700.0).abs() < 20.0, "{}", found[0].value);
        assert!((found[1].value - 2.0).abs() < 1e-9, "the machine keeps its cores");
    }

    #[test]
    fn a_constant_of_another_unit_or_name_is_refused() {
        assert!(read(&preset_text("x", &[constant("send", "us", 1.0)])).is_err());
        assert!(read(&preset_text("x", &[constant("sned", "ns", 1.0)])).is_err());
    }

    #[test]
    fn errors_are_relative_to_what_was_timed() {
        let row = |predicted_us| Predicted { timed: rows()[0], predicted_us };
        assert!((row(12.0).error_percent() - 20.0).abs() < 1e-9);
        assert!((row(8.0).error_percent() + 20.0).abs() < 1e-9);
        let lines = table(&[row(11.9), row(12.1)]).csv();
        let lines: Vec<&str> = lines.lines().skip(1).collect();
        assert_eq!(lines, ["tree,4,8,10.00,11.90,19.0,yes", "tree,4,8,10.00,12.10,21.0,NO"]);
        let said = |rows: &[Predicted]| verdict(rows);
        assert!(said(&[row(11.9), row(8.1)]).ends_with("2 of 2 rows, largest error 19.0 %: met"));
        assert!(
            said(&[row(11.9), row(7.9)]).ends_with("1 of 2 rows, largest error 21.0 %: MISSED")
        );
    }
}
