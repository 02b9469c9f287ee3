//! Whole programs in the simulator: with a tree, and by hosts alone.
//!
//! Owns [mix files](mix), the run of a [`tributary_workload::Workload`] ([`run`]) and of
//! [GOAL programs](goal) on a simulated system, and [`advice`] for a traced program. Must not hold a constant
//! of hardware or software: presets do.
#![forbid(unsafe_code)]

pub mod advice;
pub mod comparison;
pub mod goal;
pub mod mix;
pub mod run;
