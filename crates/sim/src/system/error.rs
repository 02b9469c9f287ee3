//! Why a system could not be made, or a group not formed in it.

use tributary_topology::readers;

use crate::fabric::GraphError;
use crate::world::SetupError;

/// Why a system could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemError {
    /// The topology file can't be read.
    #[error("topology `{path}`: {fault}")]
    File {
        /// Its path.
        path: String,
        /// The operating system's error.
        fault: std::io::Error,
    },
    /// The topology file is malformed.
    #[error("topology `{path}`: {fault}")]
    Topology {
        /// Its path.
        path: String,
        /// What is wrong, and where.
        fault: readers::ReadError,
    },
    /// The topology can't be simulated.
    #[error("topology `{path}`: {fault}")]
    Graph {
        /// Its path.
        path: String,
        /// What is wrong.
        fault: GraphError,
    },
    /// Routing by way of a third group, and a topology file, which has no groups.
    #[error("topology `{path}`: `routing` is `valiant`; allowed: `target` or `flow-hash`")]
    NoGroups {
        /// Its path.
        path: String,
    },
    /// Aggregators in switches, and a topology file that attaches one to a host.
    #[error(
        "aggregation node `{node}` is attached to host `{host}`, and this preset's are in switches; \
         allowed: a switch, or `on_hosts = true` in [aggregation]"
    )]
    NodeOnHost {
        /// The aggregation node.
        node: String,
        /// The host.
        host: String,
    },
    /// More software aggregators than hosts for them.
    #[error(
        "aggregation node `{node}` finds no free host below it; allowed: fewer nodes than hosts, as in \
         a topology file that lists only some [[aggregation-node]]s"
    )]
    NoHostForNode {
        /// The aggregation node.
        node: String,
    },
    /// An aggregator is to run on a host that the fabric does not have.
    #[error("the fabric has no host `{host}` for an aggregation node")]
    NoSuchHost {
        /// Its name.
        host: String,
    },
    /// The scenario needs aggregation nodes and the preset has none.
    #[error("preset `{0}` has no aggregation nodes")]
    NoAggregation(String),
    /// More hosts are needed than the fabric has.
    #[error("{needed} hosts are needed; the fabric has {has} without an aggregation node")]
    TooFewHosts {
        /// Hosts needed.
        needed: u32,
        /// Hosts that processes may run on.
        has: u32,
    },
    /// A group could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
}
