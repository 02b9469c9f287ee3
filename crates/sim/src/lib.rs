//! Fabric simulator: the unchanged `protocol` machines over a modelled network.
//!
//! A run is in virtual time and depends on its seed alone. This crate must not read a clock, open a
//! socket or start a process.
#![forbid(unsafe_code)]

pub mod engine;
pub mod fabric;
pub mod input;
pub mod measure;
pub mod preset;
pub mod system;
pub mod world;
