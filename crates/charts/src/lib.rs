//! Tables of numbers, and drawings of them.
//!
//! Owns columns, axes, marks and files' formats. Must not know what is shown.
#![forbid(unsafe_code)]

mod chart;
mod table;

pub use chart::{Axis, Chart, DrawingError, Mark, Quantity, Scale, Series};
pub use table::{Cell, Table};
