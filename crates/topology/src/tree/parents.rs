//! The choice of roots and parents.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::linked::{AggregationNode, AggregationTree, NodeIndex, PlacedNode};
use super::report::PlacementNote;
use super::survey::Survey;
use crate::distance::UNREACHABLE;
use crate::fabric::Fabric;

/// Links nodes, sorted by name, into trees.
pub(super) fn link(
    fabric: &Fabric,
    nodes: Vec<AggregationNode>,
    survey: Survey,
) -> AggregationTree {
    let placed = nodes
        .into_iter()
        .zip(&survey.at)
        .map(|(node, &at)| PlacedNode { node, at, parent: None, children: Vec::new() })
        .collect();
    let mut builder = Builder {
        tree: AggregationTree { nodes: placed, ..AggregationTree::default() },
        survey,
        order: Vec::new(),
    };
    builder.link_located(fabric);
    builder.link_unlocated();
    builder.finish()
}

/// Why every node finds a parent.
const ALWAYS_ROOM: &str = "the node placed last has a radix of 1 at least, and no child yet";

struct Builder {
    tree: AggregationTree,
    survey: Survey,
    /// Nodes of the tree that is being built, in the order in which they were placed.
    order: Vec<usize>,
}

/// Which of a node's free children count.
#[derive(Clone, Copy)]
enum Room {
    /// Those that are not reserved for hosts.
    BesidesHosts,
    Any,
}

impl Builder {
    fn link_located(&mut self, fabric: &Fabric) {
        let mut left: BTreeSet<usize> =
            (0..self.tree.nodes.len()).filter(|&node| self.survey.at[node].is_some()).collect();
        while let Some(root) = self.choose_root(fabric, &left) {
            self.begin_tree(root);
            let mut members: Vec<usize> = left
                .iter()
                .copied()
                .filter(|&node| self.to_root(root, node) != UNREACHABLE)
                .collect();
            left.retain(|&node| self.to_root(root, node) == UNREACHABLE);
            members.retain(|&node| node != root);
            members.sort_by_key(|&node| (self.to_root(root, node), node));
            for node in members {
                self.attach_by_distance(root, node);
            }
        }
    }

    /// The preferred root, else the centre, of several the highest, of several the first by name.
    fn choose_root(&self, fabric: &Fabric, left: &BTreeSet<usize>) -> Option<usize> {
        let preferred = fabric.preferred_root();
        left.iter().copied().min_by_key(|&node| {
            (
                preferred != Some(self.tree.nodes[node].node.name.as_str()),
                self.survey.farthest_host[node],
                Reverse(self.survey.nearest_host[node]),
                node,
            )
        })
    }

    fn begin_tree(&mut self, root: usize) {
        if let Some(&first) = self.tree.roots.first() {
            self.tree
                .notes
                .push(PlacementNote::Apart { node: self.name(root), root: self.name(first.0) });
        }
        self.tree.roots.push(NodeIndex(root));
        self.order = Vec::from([root]);
    }

    fn attach_by_distance(&mut self, root: usize, node: usize) {
        let far = self.to_root(root, node);
        let towards_root = |other: &usize| {
            let other = *other;
            other == root
                || (self.to_root(root, other) < far
                    && self.survey.hops[node][other].saturating_add(self.to_root(root, other))
                        == far)
        };
        let near = |other: &usize| (self.survey.hops[node][*other], *other);
        let wanted = self
            .order
            .iter()
            .filter(|other| towards_root(other))
            .min_by_key(|other| near(other))
            .copied()
            .expect("`towards_root` holds for the root itself");
        let find = |room, any: bool| {
            self.order
                .iter()
                .filter(|other| any || towards_root(other))
                .filter(|other| self.has_room(**other, room))
                .min_by_key(|other| near(other))
                .copied()
        };
        let parent = find(Room::BesidesHosts, false)
            .or_else(|| find(Room::BesidesHosts, true))
            .or_else(|| find(Room::Any, false))
            .or_else(|| find(Room::Any, true));
        self.attach(node, parent.expect(ALWAYS_ROOM), Some(wanted));
    }

    /// Nodes that the fabric does not know fill the main tree, level by level.
    fn link_unlocated(&mut self) {
        self.put_main_tree_first();
        let known = !self.tree.roots.is_empty();
        for node in 0..self.tree.nodes.len() {
            if self.survey.at[node].is_some() {
                continue;
            }
            let Some(&main) = self.tree.roots.first() else {
                self.begin_tree(node);
                continue;
            };
            if known {
                self.tree.notes.push(PlacementNote::NotInFabric { node: self.name(node) });
            }
            let order = self.tree.at_or_below(main);
            let find =
                |room| order.iter().map(|index| index.0).find(|&other| self.has_room(other, room));
            let parent = find(Room::BesidesHosts).or_else(|| find(Room::Any));
            self.attach(node, parent.expect(ALWAYS_ROOM), None);
        }
    }

    fn put_main_tree_first(&mut self) {
        let tree = &self.tree;
        let main = (0..tree.roots.len())
            .max_by_key(|&at| (tree.at_or_below(tree.roots[at]).len(), Reverse(at)));
        if let Some(main) = main {
            self.tree.roots.swap(0, main);
        }
    }

    /// Makes `node` a child of `parent`, with a note if that is not the `wanted` one.
    fn attach(&mut self, node: usize, parent: usize, wanted: Option<usize>) {
        if let Some(full) = wanted.filter(|&wanted| wanted != parent) {
            self.tree.notes.push(PlacementNote::MovedAside {
                node: self.name(node),
                parent: self.name(parent),
                full: self.name(full),
                radix: self.tree.nodes[full].node.radix,
            });
        }
        self.tree.nodes[node].parent = Some(NodeIndex(parent));
        self.tree.nodes[parent].children.push(NodeIndex(node));
        self.order.push(node);
    }

    fn finish(self) -> AggregationTree {
        AggregationTree { homes: self.survey.homes, ..self.tree }
    }

    fn has_room(&self, node: usize, room: Room) -> bool {
        let hosts = match room {
            Room::BesidesHosts => self.survey.hosts_served[node],
            Room::Any => 0,
        };
        let placed = &self.tree.nodes[node];
        placed.children.len() + hosts < usize::from(placed.node.radix)
    }

    fn to_root(&self, root: usize, node: usize) -> u32 {
        self.survey.hops[root][node]
    }

    fn name(&self, node: usize) -> alloc::string::String {
        self.tree.nodes[node].node.name.clone()
    }
}
