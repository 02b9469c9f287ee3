//! The part of an aggregation tree that serves one group.

mod homes;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use tributary_wire::{ChildIndex, EndpointId};

use crate::tree::{AggregationTree, NodeIndex};

/// Why no tree can carry a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupTreeError {
    /// A group without endpoints has no tree.
    #[error("the group has no endpoint")]
    NoEndpoints,
    /// Nothing to build a tree of.
    #[error("no aggregation node lives")]
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
    #[error("aggregation node `{node}` needs {needs} children for this group, has radix {has}")]
    RadixExceeded {
        /// The node.
        node: String,
        /// Children it would have in the group.
        needs: usize,
        /// Children it can serve.
        has: u16,
    },
}

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

/// A node's place below its parent.
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
    /// Its root is the lowest node that is above all of them, and every node between is part of
    /// it, also where it has a single child. Children stand in the order of the first endpoint of
    /// the request below them, and endpoints are numbered depth first in that order, so that each
    /// child covers a contiguous range, and a request in tree order keeps its order.
    ///
    /// A host that the fabric does not know is served by an AN of its own machine, else by one of
    /// the main tree's lowest nodes, dealt out in blocks in the order of the request.
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
            // The request is walked in order, so the first visit to a node is its lowest endpoint,
            // and everything above a visited node is visited.
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

    /// Numbers endpoints depth first: counts members upwards, then deals out ranges downwards.
    fn number(&mut self) {
        for position in (0..self.nodes.len()).rev() {
            let count = |child: &GroupChild| match *child {
                // Levels are listed in order, so a child's own range is already counted.
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
    ChildIndex(u16::try_from(index).expect("the radix was checked, and has 16 bits"))
}
