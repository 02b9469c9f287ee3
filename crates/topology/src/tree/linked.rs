//! The linked tree: its nodes, its roots, and the node that serves each host.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::report::PlacementNote;
use crate::fabric::VertexId;
use crate::hosts;

/// A running aggregation node, to be placed.
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
pub struct NodeIndex(pub(super) usize);

impl NodeIndex {
    /// The position in [`AggregationTree::nodes`].
    #[must_use]
    pub fn get(self) -> usize {
        self.0
    }
}

/// An aggregation node at its position in the tree.
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

/// Every running aggregation node, linked into trees, and the node that serves each known host.
///
/// There is one tree, and a further one for each part of the fabric that no path joins to the first.
/// Every node finds a parent, because each node placed adds at least one free child.
/// [`AggregationTree::notes`] lists what is unusual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AggregationTree {
    pub(super) nodes: Vec<PlacedNode>,
    pub(super) roots: Vec<NodeIndex>,
    pub(super) homes: BTreeMap<String, NodeIndex>,
    pub(super) notes: Vec<PlacementNote>,
}

impl AggregationTree {
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

    /// The roots. The first is that of the main tree, which has the most nodes.
    #[must_use]
    pub fn roots(&self) -> &[NodeIndex] {
        &self.roots
    }

    /// What an operator may want to know.
    #[must_use]
    pub fn notes(&self) -> &[PlacementNote] {
        &self.notes
    }

    /// The node that serves `host`, if the fabric knows the host: by its name, else by the part
    /// before a `#`, else by the part before the domain.
    #[must_use]
    pub fn home(&self, host: &str) -> Option<NodeIndex> {
        hosts::spellings(host).find_map(|name| self.homes.get(name).copied())
    }

    /// The path from the root down to `index`, both included.
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
