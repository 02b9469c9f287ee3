//! The trees of the fabric's rails, over the nodes that live now.
//!
//! A tree is placed when it is first asked for: most fabrics never see a second rail.

use alloc::string::String;
use core::array;
use core::cell::OnceCell;

use tributary_topology::{AggregationTree, Fabric, GroupTree};
use tributary_wire::Rail;

use super::error::GroupError;
use super::nodes::NodeTable;

/// Rails of one fabric: vectors are cut into so many stripes at most.
pub const RAILS_MAX: u8 = 4;

#[derive(Default)]
pub(super) struct Rails {
    trees: [OnceCell<AggregationTree>; RAILS_MAX as usize],
}

impl Rails {
    /// The living nodes have changed: every tree is placed anew.
    pub(super) fn clear(&mut self) {
        self.trees = array::from_fn(|_| OnceCell::new());
    }

    /// The tree of a rail below [`RAILS_MAX`].
    pub(super) fn tree(&self, fabric: &Fabric, nodes: &NodeTable, rail: Rail) -> &AggregationTree {
        self.trees[usize::from(rail.0)].get_or_init(|| {
            AggregationTree::place_rail(fabric, &nodes.for_placement(), rail)
                .expect("registration keeps names apart and every radix above 0")
        })
    }

    /// The part of a rail's tree that joins `hosts`, if no rail before it has the same root for
    /// them: parts of a vector that meet at one node win nothing by having come in two groups.
    pub(super) fn group_tree(
        &self,
        fabric: &Fabric,
        nodes: &NodeTable,
        rail: Rail,
        hosts: &[String],
    ) -> Result<GroupTree, GroupError> {
        let build = |rail| GroupTree::build(self.tree(fabric, nodes, rail), hosts);
        let tree = build(rail)?;
        let root = &tree.nodes()[0].name;
        for other in (0..rail.0).map(Rail) {
            if build(other).is_ok_and(|before| before.nodes()[0].name == *root) {
                return Err(GroupError::SameRoot { rail, other, root: root.clone() });
            }
        }
        Ok(tree)
    }
}
