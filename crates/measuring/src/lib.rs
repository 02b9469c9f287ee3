//! Collectives measured through a launcher of MPI.
//!
//! Owns the measuring program's source, what it says, the figures that come of it, the paths between hosts that are measured one by
//! one ([`paths`]), and the file to pass on, with what may be in it. Must not know how the program is compiled and started, or how figures are shown.
#![forbid(unsafe_code)]

mod case;
mod document;
mod lines;
mod names;
pub mod paths;
mod rows;
mod said;

pub use case::{Case, Collective, Library};
pub use document::{Setting, text as document};
pub use lines::{Adapter, Done, Host, Line, Start, read as read_line};
pub use names::{Names, library as library_name};
pub use rows::{Bandwidth, Measured, Ratio, Row, Times, median, quantile};
pub use said::{Outcome, Said, Unusable};

/// The measuring program, for the compiler of an MPI.
pub const SOURCE: &str = include_str!("measure.c");
