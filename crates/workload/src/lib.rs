//! What programs do: which collectives, over whom, how long, and how much they compute between.
//!
//! Owns the form that the simulator runs ([`Workload`]), the [`goal`] text format, and [`trace`]s of real
//! programs: how they are recorded, written and read. Must not run anything, and must not know a fabric.
#![forbid(unsafe_code)]

mod distribution;
pub mod goal;
mod program;
pub mod trace;

pub use distribution::Distribution;
pub use program::{Call, Communicator, Phase, Script, Steps, Workload};
