//! What the tests of the protocol machines have in common: the tree tests and the fuzzers of
//! `protocol`, and the swarm.
//!
//! Owns what stands around a machine wherever it is tried out: the payload memory of an aggregator, the
//! operations of a member, the data and what must become of it, the unanswered requests of an edge,
//! frames and grants. Must not know how links behave or in which order things happen: that is each
//! driver's own. No crate of the product depends on this one, except for its tests.
//!
//! - [`workload`]: operations, and the mixture that random ones are drawn from.
//! - `exact`: exact sums of floats, and whether they are right.
//! - [`values`]: the elements that members contribute, and the result over a tree.
//! - [`NodeMemory`]: payload memory, which checks every call against the contract if it is asked to.
//! - [`Operations`]: what a member has under way.
#![forbid(unsafe_code)]

pub mod frames;
pub mod values;
pub mod workload;

mod contribution;
mod edges;
mod exact;
mod memory;
mod operations;
mod order;
mod ports;
mod windows;

pub use edges::NodeEdges;
pub use memory::NodeMemory;
pub use operations::{Operations, Running};
pub use ports::Ports;
pub use windows::{InFlight, Windows};
