//! What placement reports: errors, and notes for operators.

use alloc::string::String;

/// The list of aggregation nodes contradicts itself: a mistake of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// Two nodes have one name.
    #[error("two aggregation nodes are called `{0}`; each needs a name of its own")]
    NameTwice(String),
    /// A node that serves no child cannot aggregate.
    #[error("aggregation node `{0}` has radix 0; it needs 1 at least")]
    RadixZero(String),
}

/// Something about a placement that an operator may want to know. The tree is valid all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementNote {
    /// The fabric names neither the node nor its machine, so the node has the first free place.
    #[error("the topology names neither aggregation node `{node}` nor its machine")]
    NotInFabric {
        /// The node.
        node: String,
    },
    /// The nearest node towards the root had no free child.
    #[error(
        "aggregation node `{node}` is a child of `{parent}`: `{full}` has radix {radix} and no child left"
    )]
    MovedAside {
        /// The node.
        node: String,
        /// Its parent.
        parent: String,
        /// Its parent by distance.
        full: String,
        /// The radix of that one.
        radix: u16,
    },
    /// No path leads from the node to the first tree's root: it belongs to another tree.
    #[error("aggregation node `{node}` has no path to `{root}` and begins another tree")]
    Apart {
        /// Root of the other tree.
        node: String,
        /// Root of the first tree.
        root: String,
    },
}
