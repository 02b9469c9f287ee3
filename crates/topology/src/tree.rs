//! The aggregation trees over a fabric: which AN is the parent of which, and which AN serves which
//! host.

mod parents;
mod survey;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::fabric::{Fabric, VertexId};
use crate::hosts;
use survey::Survey;

/// An aggregation node that lives and can be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregationNode {
    /// Its name; unique.
    pub name: String,
    /// The machine it runs on.
    pub machine: String,
    /// Children it can serve in one group; at least 1.
    pub radix: u16,
}

/// Index of a node in its [`AggregationTree`]; nodes are numbered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(usize);

impl NodeIndex {
    /// The position in [`AggregationTree::nodes`].
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }
}

/// An aggregation node in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedNode {
    /// The node.
    pub node: AggregationNode,
    /// What it is attached to; none if the fabric does not know it.
    pub at: Option<VertexId>,
    /// The node above; none at a root.
    pub parent: Option<NodeIndex>,
    /// The nodes below, in the order in which they were placed.
    pub children: Vec<NodeIndex>,
}

/// The list of aggregation nodes contradicts itself. The caller is at fault.
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

/// Something about a placement that an operator may want to know; the tree stands all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementNote {
    /// The fabric names neither the node nor its machine, so it was put where there was room.
    #[error("the topology names neither aggregation node `{node}` nor its machine")]
    NotInFabric {
        /// The node.
        node: String,
    },
    /// The nearest node towards the root had no child to spare.
    #[error(
        "aggregation node `{node}` hangs below `{parent}`: `{full}` has radix {radix} and no place left"
    )]
    MovedAside {
        /// The node.
        node: String,
        /// Where it hangs now.
        parent: String,
        /// Where it would hang by distance.
        full: String,
        /// What that one can serve.
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

/// Every living aggregation node, linked into trees; and where each known host is served.
///
/// One tree as a rule; another one begins where the fabric has no path. No node is ever left out:
/// every node brings at least one place with it. [`AggregationTree::notes`] says what is unusual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AggregationTree {
    nodes: Vec<PlacedNode>,
    roots: Vec<NodeIndex>,
    homes: BTreeMap<String, NodeIndex>,
    notes: Vec<PlacementNote>,
}

impl AggregationTree {
    /// Places `nodes` on `fabric`.
    ///
    /// An AN is where the description puts it; else at the switch or host of its own name; else at
    /// the host it runs on. The root is the AN the description prefers, else the one from which the
    /// farthest host is nearest (the centre), of several the one farthest from its nearest host
    /// (the highest), of several the first by name. The parent of an AN is the nearest AN on the
    /// shortest paths to the root that has a child to spare, counting one child for each host it
    /// serves; else the nearest AN anywhere in the tree that has; else the same without sparing
    /// places for hosts. ANs that the fabric does not know
    /// fill the tree level by level, by name: so they do without a topology file.
    ///
    /// # Errors
    /// [`PlacementError`]: names must differ and every radix be at least 1.
    pub fn place(fabric: &Fabric, nodes: &[AggregationNode]) -> Result<Self, PlacementError> {
        let mut nodes = nodes.to_vec();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        check(&nodes)?;
        let survey = Survey::of(fabric, &nodes);
        Ok(parents::link(fabric, nodes, survey))
    }

    /// Every node, by name.
    #[must_use]
    pub fn nodes(&self) -> &[PlacedNode] {
        &self.nodes
    }

    /// One node.
    ///
    /// # Panics
    /// If the index is of a larger tree.
    #[must_use]
    pub fn node(&self, index: NodeIndex) -> &PlacedNode {
        &self.nodes[index.0]
    }

    /// The node of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeIndex> {
        self.nodes
            .binary_search_by(|placed| placed.node.name.as_str().cmp(name))
            .ok()
            .map(NodeIndex)
    }

    /// The roots, the main tree's first: the tree of the most nodes.
    #[must_use]
    pub fn roots(&self) -> &[NodeIndex] {
        &self.roots
    }

    /// What an operator may want to know.
    #[must_use]
    pub fn notes(&self) -> &[PlacementNote] {
        &self.notes
    }

    /// The node that serves `host`, if the fabric knows the host: by its name, else by what stands
    /// before a `#`, else by what stands before the domain.
    #[must_use]
    pub fn home(&self, host: &str) -> Option<NodeIndex> {
        hosts::spellings(host).find_map(|name| self.homes.get(name).copied())
    }

    /// The way from the root down to `index`, both included.
    pub(crate) fn path_from_root(&self, index: NodeIndex) -> Vec<NodeIndex> {
        let mut path = Vec::from([index]);
        let mut at = index;
        while let Some(parent) = self.node(at).parent {
            path.push(parent);
            at = parent;
        }
        path.reverse();
        path
    }

    /// Every node at or below `root`, level by level.
    pub(crate) fn at_or_below(&self, root: NodeIndex) -> Vec<NodeIndex> {
        let mut order = Vec::from([root]);
        let mut next = 0;
        while let Some(&at) = order.get(next) {
            order.extend_from_slice(&self.node(at).children);
            next += 1;
        }
        order
    }
}

fn check(nodes: &[AggregationNode]) -> Result<(), PlacementError> {
    if let Some(pair) = nodes.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(PlacementError::NameTwice(pair[0].name.clone()));
    }
    match nodes.iter().find(|node| node.radix == 0) {
        Some(node) => Err(PlacementError::RadixZero(node.name.clone())),
        None => Ok(()),
    }
}
