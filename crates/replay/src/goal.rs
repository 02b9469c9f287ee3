//! GOAL programs: run on a simulated system, and written from a workload.

mod export;
mod run;

pub use export::{ExportError, export};
pub use run::{GoalOutcome, run};

#[cfg(test)]
mod tests;
