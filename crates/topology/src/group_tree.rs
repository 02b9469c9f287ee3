//! The part of an aggregation tree that serves one group.

mod error;
mod homes;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use tributary_wire::{ChildIndex, EndpointId};

use crate::tree::{AggregationTree, NodeIndex};

pub use error::GroupTreeError;

/// The nodes of one group and the numbers of its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTree {
    nodes: Vec<GroupNode>,
    endpoints: Vec<EndpointPlace>,
}

/// An aggregation node's part of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNode {
    /// Its name.
    pub name: String,
    /// Hops below the group's root.
    pub level: u32,
    /// The node above; none at the root.
    pub parent: Option<ParentPlace>,
    /// Its children in reduction order: ascending by the members below them.
    pub children: Vec<GroupChild>,
    /// The members at or below it.
    pub members: Range<u32>,
}

/// Where a node is attached to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentPlace {
    /// Position of the parent in [`GroupTree::nodes`].
    pub node: usize,
    /// Position among the parent's children.
    pub child: ChildIndex,
}

/// One child of one node of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupChild {
    /// The node at that position in [`GroupTree::nodes`].
    Node(usize),
    /// A member.
    Endpoint {
        /// Its number.
        endpoint: EndpointId,
        /// Its position in the request.
        request: usize,
    },
}

/// Where one endpoint of the request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointPlace {
    /// Its number in the group.
    pub endpoint: EndpointId,
    /// Position of its node in [`GroupTree::nodes`].
    pub node: usize,
    /// Its place among that node's children.
    pub child: ChildIndex,
}

impl GroupTree {
    /// The subtree that joins the endpoints on `hosts`, one entry per endpoint.
    ///
    /// Its root is the lowest node above all of them. Every node between belongs to it, even with a
    /// single child. Children are ordered by the first endpoint of the request below them, and
    /// endpoints are numbered depth first in that order. So each child covers a contiguous range, and
    /// a request in tree order keeps its order.
    ///
    /// An AN on its own machine serves a host that the fabric does not know; else one of the main
    /// tree's lowest nodes does, assigned in blocks in the order of the request.
    ///
    /// # Errors
    /// [`GroupTreeError`].
    ///
    /// # Panics
    /// If there are 2^32 endpoints or more.
    pub fn build<S: AsRef<str>>(
        tree: &AggregationTree,
        hosts: &[S],
    ) -> Result<Self, GroupTreeError> {
        if hosts.is_empty() {
            return Err(GroupTreeError::NoEndpoints);
        }
        assert!(u32::try_from(hosts.len()).is_ok(), "endpoint numbers have 32 bits");
        let homes = homes::assign(tree, hosts)?;
        let root = common_root(tree, hosts, &homes)?;
        let mut builder = Builder::new(tree, root, &homes);
        builder.join_children(&homes);
        builder.check_radix()?;
        builder.number();
        Ok(Self { endpoints: builder.endpoints(homes.len()), nodes: builder.nodes })
    }

    /// The nodes, root first and level by level.
    #[must_use]
    pub fn nodes(&self) -> &[GroupNode] {
        &self.nodes
    }

    /// The endpoints, in the order of the request.
    #[must_use]
    pub fn endpoints(&self) -> &[EndpointPlace] {
        &self.endpoints
    }
}

/// The lowest node at or above every home.
fn common_root<S: AsRef<str>>(
    tree: &AggregationTree,
    hosts: &[S],
    homes: &[NodeIndex],
) -> Result<NodeIndex, GroupTreeError> {
    let mut common = tree.path_from_root(homes[0]);
    for (host, &home) in hosts.iter().zip(homes) {
        let path = tree.path_from_root(home);
        let shared = common.iter().zip(&path).take_while(|(one, other)| one == other).count();
        if shared == 0 {
            return Err(GroupTreeError::Apart {
                one: hosts[0].as_ref().to_string(),
                one_node: tree.node(homes[0]).node.name.clone(),
                other: host.as_ref().to_string(),
                other_node: tree.node(home).node.name.clone(),
            });
        }
        common.truncate(shared);
    }
    Ok(*common.last().expect("at least the root is shared"))
}

struct Builder<'a> {
    tree: &'a AggregationTree,
    nodes: Vec<GroupNode>,
    /// Position in `nodes` of each tree node that is part of the group.
    positions: BTreeMap<NodeIndex, usize>,
    /// The first endpoint of the request at or below each tree node.
    first_request: BTreeMap<NodeIndex, usize>,
}

impl<'a> Builder<'a> {
    fn new(tree: &'a AggregationTree, root: NodeIndex, homes: &[NodeIndex]) -> Self {
        let mut first_request = BTreeMap::new();
        for (request, &home) in homes.iter().enumerate() {
            let mut at = home;
            // The loop follows the request, so a node's first visitor is its first endpoint, and
            // every node above a visited one has been visited.
            while !first_request.contains_key(&at) {
                first_request.insert(at, request);
                match tree.node(at).parent {
                    Some(parent) if at != root => at = parent,
                    _ => break,
                }
            }
        }
        let mut builder =
            Self { tree, nodes: Vec::new(), positions: BTreeMap::new(), first_request };
        builder.list_nodes(root);
        builder
    }

    /// Lists the nodes level by level; children by their first endpoint.
    fn list_nodes(&mut self, root: NodeIndex) {
        let mut order = Vec::from([(root, 0)]);
        let mut next = 0;
        while let Some(&(at, level)) = order.get(next) {
            let placed = self.tree.node(at);
            self.positions.insert(at, next);
            self.nodes.push(GroupNode {
                name: placed.node.name.clone(),
                level,
                parent: None,
                children: Vec::new(),
                members: 0..0,
            });
            let mut below: Vec<_> = placed
                .children
                .iter()
                .filter_map(|child| self.first_request.get(child).map(|first| (*first, *child)))
                .collect();
            below.sort_unstable();
            order.extend(below.into_iter().map(|(_, child)| (child, level + 1)));
            next += 1;
        }
    }

    /// Gives every node its children, nodes and endpoints, by first endpoint of the request.
    fn join_children(&mut self, homes: &[NodeIndex]) {
        let mut keyed: Vec<(usize, usize, GroupChild)> = Vec::new();
        for (request, home) in homes.iter().enumerate() {
            let child = GroupChild::Endpoint { endpoint: EndpointId(0), request };
            keyed.push((self.positions[home], request, child));
        }
        for (&index, &position) in &self.positions {
            let parent = self.tree.node(index).parent.and_then(|above| self.positions.get(&above));
            if let Some(&parent) = parent {
                keyed.push((parent, self.first_request[&index], GroupChild::Node(position)));
            }
        }
        keyed.sort_unstable_by_key(|&(parent, first, _)| (parent, first));
        for (parent, _, child) in keyed {
            self.nodes[parent].children.push(child);
        }
    }

    fn check_radix(&self) -> Result<(), GroupTreeError> {
        for (index, &position) in &self.positions {
            let node = &self.tree.node(*index).node;
            let needs = self.nodes[position].children.len();
            if needs > usize::from(node.radix) {
                let name = node.name.clone();
                return Err(GroupTreeError::RadixExceeded { node: name, needs, has: node.radix });
            }
        }
        Ok(())
    }

    /// Numbers endpoints depth first: counts members upwards, then assigns ranges downwards.
    fn number(&mut self) {
        for position in (0..self.nodes.len()).rev() {
            let count = |child: &GroupChild| match *child {
                // The list goes level by level, so a child's members are already counted.
                GroupChild::Node(below) => self.nodes[below].members.end,
                GroupChild::Endpoint { .. } => 1,
            };
            self.nodes[position].members = 0..self.nodes[position].children.iter().map(count).sum();
        }
        for position in 0..self.nodes.len() {
            let mut next = self.nodes[position].members.start;
            let mut children = core::mem::take(&mut self.nodes[position].children);
            for (index, child) in children.iter_mut().enumerate() {
                match child {
                    GroupChild::Endpoint { endpoint, .. } => {
                        *endpoint = EndpointId(next);
                        next += 1;
                    }
                    GroupChild::Node(below) => {
                        let below = &mut self.nodes[*below];
                        below.parent =
                            Some(ParentPlace { node: position, child: child_index(index) });
                        below.members = next..next + below.members.end;
                        next = below.members.end;
                    }
                }
            }
            self.nodes[position].children = children;
        }
    }

    fn endpoints(&self, count: usize) -> Vec<EndpointPlace> {
        let nowhere = EndpointPlace { endpoint: EndpointId(0), node: 0, child: ChildIndex(0) };
        let mut places = alloc::vec![nowhere; count];
        for (node, part) in self.nodes.iter().enumerate() {
            for (index, child) in part.children.iter().enumerate() {
                if let GroupChild::Endpoint { endpoint, request } = *child {
                    places[request] = EndpointPlace { endpoint, node, child: child_index(index) };
                }
            }
        }
        places
    }
}

fn child_index(index: usize) -> ChildIndex {
    ChildIndex(u16::try_from(index).expect("a radix has 16 bits, and `check_radix` has compared"))
}
