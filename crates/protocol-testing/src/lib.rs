//! What the tests of the protocol machines share: the tree tests and fuzzers of `protocol`, and the
//! swarm.
//!
//! Owns the surroundings of a machine under test: a node's payload memory, a member's operations,
//! their data and expected results, an edge's unanswered requests, frames and grants. Must not know
//! how links behave or in which order things happen; every driver decides that itself. Only tests
//! depend on this crate.
//!
//! - [`workload`]: operations, and the mixture from which random ones are drawn.
//! - [`values`]: the elements that members contribute, and the result over a tree.
//! - [`NodeMemory`]: payload memory that checks every call against the contract.
//! - [`Operations`]: the operations that a member has under way.
#![forbid(unsafe_code)]

pub mod frames;
pub mod values;
pub mod workload;

mod edges;
mod memory;
mod operations;
mod ports;
mod windows;

pub use edges::NodeEdges;
pub use memory::NodeMemory;
pub use operations::{Operations, Running};
pub use ports::Ports;
pub use windows::{InFlight, Windows};
