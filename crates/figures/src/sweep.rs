//! Simulation of a figure's points, on all cores.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use tributary_sim::input::Refused;
use tributary_sim::preset::PresetError;
use tributary_sim::system::SystemError;
use tributary_sim::world::RunError;

/// Why a figure could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FigureError {
    /// No such figure.
    #[error("no figure is called `{name}`; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of all figures.
        known: String,
    },
    /// A preset could not be read.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// The system can't answer the question.
    #[error(transparent)]
    Question(#[from] Refused),
    /// A system could not be made.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A simulation failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// How much is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Seed of everything random.
    pub seed: u64,
    /// Operations for each point of a distribution.
    pub operations: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { seed: 1, operations: 200 }
    }
}

/// The progress of a figure: points done, and points in all.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// More points are known.
    pub(crate) fn expect(&self, points: u64) {
        self.total.fetch_add(points, Ordering::Relaxed);
    }

    /// One more point is done.
    pub(crate) fn advance(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Points done, and points known so far.
    #[must_use]
    pub fn state(&self) -> (u64, u64) {
        // Relaxed: the counters are for display, and no other data depends on them.
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// What a drawing says of points with bars.
pub(crate) fn quartiles_note(operations: u32) -> String {
    format!("operations for each point: {operations}; bars: first to third quartile over processes")
}

/// Simulates the points in parallel. Returns the results in the order of the points.
pub(crate) fn sweep<P: Sync, R: Send>(
    points: &[P],
    progress: &Progress,
    simulate: impl Fn(&P) -> Result<R, FigureError> + Sync,
) -> Result<Vec<R>, FigureError> {
    progress.expect(points.len() as u64);
    points
        .par_iter()
        .map(|point| {
            let result = simulate(point);
            progress.advance();
            result
        })
        .collect()
}
