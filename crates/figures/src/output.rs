//! A finished figure.

use tributary_charts::{Chart, Table};

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
    /// How many operations each point is of, and what else the drawing does not say itself.
    pub note: String,
}

/// Published statements about a figure, with the simulated values.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The statements.
    pub table: Table,
    /// The same as one-line captions.
    pub captions: Vec<String>,
}
