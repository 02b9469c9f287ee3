//! Measurements of a system: the constants of the cost model, and times of whole operations.
//!
//! Owns the tuning file ([`Tuning`]), and the prices of a network that explain measured times best ([`fit()`]).
//! `tributary tune` writes the file, `tributary model` shows it beside the model, and communicators
//! select paths by it (`TRIBUTARY_TUNING`). Must not know how operations run, or which path is taken.

mod choice;
mod file;
mod fit;
mod groups;

pub use choice::{AlgorithmChoice, MessageCarrier, Method};
pub use file::{CostsRow, Measurement, Site, Tuning, TuningError};
pub use fit::{Fitted, MISS_MAX, Timed, Way, fit};
pub use groups::{fastest_levels, rows_of_levels};
