//! Figures: the published ones again, simulated, with the published values beside them.
//!
//! Owns what is simulated for each figure and how it is shown: a table, its CSV, a drawing. What a
//! figure compares with stands in `published/`, copied from the project's own files; nothing here
//! holds a published number.

mod amg;
mod chart;
mod communicators;
mod distribution;
mod full_hosts;
mod latency;
mod published;
mod scale;
mod statements;
mod streaming;
mod table;
mod tables;

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use crate::preset::PresetError;
use crate::system::SystemError;
use crate::world::RunError;

pub use chart::{Axis, Chart, Mark, Quantity, Scale, Series};
pub use table::{Cell, Table};

/// Why a figure could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FigureError {
    /// No such figure.
    #[error("no figure is called `{name}`; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A preset could not be read.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// A system could not be made.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A system failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A drawing could not be made.
    #[error("the drawing failed: {0}")]
    Drawing(String),
}

/// How figures are made.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Seed of everything random.
    pub seed: u64,
    /// Operations behind each point of a distribution.
    pub operations: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { seed: 1, operations: 200 }
    }
}

/// How far a figure is: points done and points in all.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Points done, and points known of so far.
    #[must_use]
    pub fn state(&self) -> (u64, u64) {
        // Counters for people only: nothing else is read on the strength of them.
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// A figure, ready to be written.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name, and that of its files.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// Its numbers.
    pub table: Table,
    /// Its drawing.
    pub chart: Chart,
}

/// What was published about a figure in words, beside what the simulator has.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The statements; none where there are none.
    pub table: Table,
    /// The same in short, a line for each.
    pub captions: Vec<String>,
}

type Maker = fn(&Effort, &Progress) -> Result<Figure, FigureError>;

/// Every figure.
const FIGURES: &[(&str, Maker)] = &[
    ("table1", tables::table1),
    ("table2", tables::table2),
    ("latency", latency::latency),
    ("distribution", distribution::distribution),
    ("communicators", communicators::communicators),
    ("channels", full_hosts::channels),
    ("leaders", full_hosts::leaders),
    ("amg", amg::amg),
    ("dpml-edr", full_hosts::dpml_edr),
    ("dpml-omni-path", full_hosts::dpml_opa),
    ("dpml-10240", full_hosts::dpml_scale),
    ("streaming", streaming::allreduce),
    ("streaming-reduce", streaming::reduce),
    ("scale", scale::scale),
    ("statements", statements::statements),
];

/// The published statements that are about what a figure shows.
const STATEMENTS: &[(&str, &[&str])] = &[
    ("latency", &["S1", "S4", "S5"]),
    ("communicators", &["S3"]),
    ("channels", &["S2"]),
    ("leaders", &["S10", "S11"]),
    ("dpml-edr", &["S8", "S9"]),
    ("streaming", &["S6", "S7"]),
    ("scale", &["S12"]),
];

/// Names of all figures.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(name, _)| *name)
}

/// Makes a figure, on all cores.
///
/// # Errors
/// [`FigureError`].
pub fn make(name: &str, effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let found = FIGURES.iter().find(|(known, _)| *known == name);
    let (_, maker) = found.ok_or_else(|| FigureError::Unknown {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })?;
    maker(effort, progress)
}

/// What was published in words about what a figure shows, beside the simulator's. Figures of which
/// nothing is published in words have no rows; `statements` is all of it, and has none of its own.
///
/// # Errors
/// [`FigureError`].
pub fn compare(name: &str, effort: &Effort, progress: &Progress) -> Result<Compared, FigureError> {
    let of_figure = STATEMENTS.iter().find(|(figure, _)| *figure == name);
    statements::compared(of_figure.map_or(&[], |(_, ids)| *ids), effort, progress)
}

/// Simulates every point on its own core, and gives the results in the order of the points.
pub(crate) fn sweep<P: Sync, R: Send>(
    points: &[P],
    progress: &Progress,
    simulate: impl Fn(&P) -> Result<R, FigureError> + Sync,
) -> Result<Vec<R>, FigureError> {
    progress.total.fetch_add(points.len() as u64, Ordering::Relaxed);
    points
        .par_iter()
        .map(|point| {
            let result = simulate(point);
            progress.done.fetch_add(1, Ordering::Relaxed);
            result
        })
        .collect()
}
