//! A finished figure.

use super::chart::Chart;
use super::table::Table;

/// A finished figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name, and that of its files.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// Its numbers.
    pub table: Table,
    /// Its drawing.
    pub chart: Chart,
}

/// Published statements about a figure, with the simulated values.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The statements.
    pub table: Table,
    /// The same as one-line captions.
    pub captions: Vec<String>,
}
