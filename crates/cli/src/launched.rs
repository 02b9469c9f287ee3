//! The measuring program on the hosts of an MPI's launcher.
//!
//! The MPI's compiler makes the program of crate `measuring` ([`program`]), and the launcher starts it with the preload library or
//! without ([`launch`]). What is measured, and what becomes of it, is the callers'.

mod job;
mod launch;
mod program;

pub(crate) use job::Job;
pub(crate) use launch::{Launcher, Start, Stop, With};
pub(crate) use program::compile;
