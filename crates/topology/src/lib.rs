//! The physical fabric, and the aggregation trees that are placed over it.
//!
//! Owns the graph of switches, hosts and links, the readers of topology files, and the choice of
//! which aggregation node (AN) is the parent of which. Does no I/O: readers take text. Must not
//! know groups' capabilities, links between processes, or time.
//!
//! The steps: a [`Fabric`] (read by [`readers`] or made by [`two_level`]) and the running
//! [`AggregationNode`]s give an [`AggregationTree`]; that and the hosts of a group's endpoints give
//! a [`GroupTree`]. Every step is a function of its arguments alone, so equal inputs give equal
//! trees, and so equal reduction orders.
//!
//! File formats are described in `docs/topology.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod distance;
mod embedded;
mod fabric;
mod group_tree;
pub mod hostlist;
mod hosts;
#[cfg(feature = "readers")]
pub mod readers;
mod spread;
mod tree;

pub use embedded::two_level;
pub use fabric::{Fabric, FabricError, Vertex, VertexId, VertexKind};
pub use group_tree::{
    EndpointPlace, GroupChild, GroupNode, GroupTree, GroupTreeError, ParentPlace,
};
pub use tree::{
    AggregationNode, AggregationTree, NodeIndex, PlacedNode, PlacementError, PlacementNote,
};
