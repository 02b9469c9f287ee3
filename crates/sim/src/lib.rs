//! Fabric simulator: the unchanged `protocol` machines over a modelled network.
//!
//! Everything happens in virtual time and from a seed: nothing here reads a clock, opens a socket
//! or starts a process.
#![forbid(unsafe_code)]

pub mod engine;
pub mod fabric;
pub mod figure;
pub mod measure;
pub mod plan;
pub mod preset;
pub mod system;
pub mod world;
