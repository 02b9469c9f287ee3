//! Trees whose stream locks are in use.
//!
//! Groups with one [`TreeId`] must agree on which of two nodes is above the other; otherwise their
//! locks could wait for each other in a circle (see `node::stream`). Groups stay where they are
//! when the fabric is placed anew, so each placement gets its own number. A number is free again
//! once the last group of its placement has ended.

use alloc::collections::BTreeMap;

use tributary_wire::TreeId;

/// Numbers a shape of the tree. It grows whenever the shape may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement(pub(super) u64);

/// Stands for every placement that this manager did not make. No group is granted in it.
const FOREIGN: Placement = Placement(u64::MAX);

#[derive(Default)]
pub(super) struct StreamTrees {
    in_use: BTreeMap<TreeId, (Placement, u32)>,
}

impl StreamTrees {
    /// The number of a placement, below `trees`: its present one, or a free one. None if none is
    /// free; then the group has no streams.
    pub(super) fn number(&self, placement: Placement, trees: u16) -> Option<TreeId> {
        let has_it = |tree: &TreeId| self.in_use.get(tree).is_some_and(|it| it.0 == placement);
        let numbers = || (0..trees).map(TreeId);
        numbers().find(has_it).or_else(|| numbers().find(|tree| !self.in_use.contains_key(tree)))
    }

    /// One more group of the placement streams in the tree.
    pub(super) fn take(&mut self, placement: Placement, tree: TreeId) {
        let (owner, groups) = self.in_use.entry(tree).or_insert((placement, 0));
        assert_eq!(*owner, placement, "a tree's number means one placement at a time");
        *groups += 1;
    }

    /// A group of another manager streams in the tree, in a shape that is not known. Until it has ended, the number
    /// is not given to further groups: those that have it already are on other nodes, which did not know it.
    pub(super) fn take_over(&mut self, tree: TreeId) {
        let (placement, groups) = self.in_use.entry(tree).or_insert((FOREIGN, 0));
        *placement = FOREIGN;
        *groups += 1;
    }

    /// One group fewer.
    pub(super) fn give_back(&mut self, tree: TreeId) {
        let (_, groups) = self.in_use.get_mut(&tree).expect("only what was taken is given back");
        *groups -= 1;
        if *groups == 0 {
            self.in_use.remove(&tree);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_keep_their_numbers_while_they_have_groups() {
        let mut trees = StreamTrees::default();
        let [old, new, newest] = [1, 2, 3].map(Placement);
        assert_eq!(trees.number(old, 0), None);
        for _ in 0..2 {
            assert_eq!(trees.number(old, 2), Some(TreeId(0)));
            trees.take(old, TreeId(0));
        }
        assert_eq!(trees.number(new, 2), Some(TreeId(1)));
        assert_eq!(trees.number(new, 1), None, "a node with one tree has none to spare");
        trees.take(new, TreeId(1));
        assert_eq!(trees.number(newest, 2), None);
        trees.give_back(TreeId(0));
        assert_eq!(trees.number(newest, 2), None, "a group of the old placement stands");
        trees.give_back(TreeId(0));
        assert_eq!(trees.number(newest, 2), Some(TreeId(0)));
    }
}
