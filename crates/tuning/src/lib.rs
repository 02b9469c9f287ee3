//! Measurements of a system: the constants of the cost model, and times of whole operations.
//!
//! Owns the tuning file ([`Tuning`]) and the measurement of the constants ([`measure_costs`]).
//! `tributary tune` writes the file, `tributary model` shows it beside the model, and communicators
//! select paths by it (`TRIBUTARY_TUNING`). Must not know how operations run, or which path is taken.

mod choice;
mod file;
mod measure;

pub use choice::{AlgorithmChoice, Method};
pub use file::{CostsRow, Measurement, Tuning, TuningError};
pub use measure::{MeasureError, measure_costs};
