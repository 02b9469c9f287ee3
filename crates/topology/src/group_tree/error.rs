//! Why a group has no tree.

use alloc::string::String;

/// Why no tree can carry a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupTreeError {
    /// A group without endpoints has no tree.
    #[error("the group has no endpoint")]
    NoEndpoints,
    /// There is no aggregation node to build a tree of.
    #[error("no aggregation node runs")]
    NoAggregationNode,
    /// The hosts are served by different trees.
    #[error(
        "host `{one}` is served by aggregation node `{one_node}` and host `{other}` by `{other_node}`, and no tree joins these"
    )]
    Apart {
        /// A host.
        one: String,
        /// The node that serves it.
        one_node: String,
        /// A host of another tree.
        other: String,
        /// The node that serves that one.
        other_node: String,
    },
    /// A node would have more children in this group than it can serve.
    #[error("aggregation node `{node}` needs {needs} children for this group, but has radix {has}")]
    RadixExceeded {
        /// The node.
        node: String,
        /// Children that it would have in the group.
        needs: usize,
        /// Children that it can serve.
        has: u16,
    },
}
