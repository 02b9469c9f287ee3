//! Trees whose stream locks are in use.
//!
//! Groups with one [`TreeId`] must agree on which of two aggregators is above the other; otherwise their
//! locks could wait for each other in a circle (see `node::stream`). Groups stay where they are
//! when the fabric is placed anew, so each placement gets its own number. A number is free again
//! once the last group of its placement has ended. A lock is held as long as a vector travels, so tenants share
//! none: nobody waits for a stream of another tenant.

use alloc::collections::BTreeMap;

use tributary_wire::TreeId;

use super::caller::Caller;

/// Numbers a shape of the tree. It grows whenever the shape may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement(pub(super) u64);

/// Stands for every placement that this manager did not make. No group is granted in it.
const FOREIGN: Placement = Placement(u64::MAX);

#[derive(Default)]
pub(super) struct StreamTrees {
    in_use: BTreeMap<TreeId, StreamTree>,
}

/// A number that is in use.
struct StreamTree {
    placement: Placement,
    /// The owner of its groups.
    owner: Caller,
    groups: u32,
}

impl StreamTrees {
    /// The number of an owner's groups in a placement, below `trees`: its present one, or a free one. None if
    /// none is free; then the group has no streams.
    pub(super) fn number(
        &self,
        placement: Placement,
        owner: &Caller,
        trees: u16,
    ) -> Option<TreeId> {
        let has_it = |tree: &TreeId| {
            let used = self.in_use.get(tree);
            used.is_some_and(|it| it.placement == placement && it.owner == *owner)
        };
        let numbers = || (0..trees).map(TreeId);
        numbers().find(has_it).or_else(|| numbers().find(|tree| !self.in_use.contains_key(tree)))
    }

    /// One more group of the placement streams in the tree.
    pub(super) fn take(&mut self, placement: Placement, owner: &Caller, tree: TreeId) {
        let new = || StreamTree { placement, owner: owner.clone(), groups: 0 };
        let used = self.in_use.entry(tree).or_insert_with(new);
        assert_eq!(used.placement, placement, "a tree's number means one placement at a time");
        used.groups += 1;
    }

    /// A group of another manager streams in the tree, in a shape that is not known. Until it has ended, the number
    /// is not given to further groups: those that have it already are on other aggregators, which did not know it.
    pub(super) fn take_over(&mut self, tree: TreeId) {
        let new = StreamTree { placement: FOREIGN, owner: Caller::Operator, groups: 0 };
        let used = self.in_use.entry(tree).or_insert(new);
        used.placement = FOREIGN;
        used.groups += 1;
    }

    /// One group fewer.
    pub(super) fn give_back(&mut self, tree: TreeId) {
        let used = self.in_use.get_mut(&tree).expect("only what was taken is given back");
        used.groups -= 1;
        if used.groups == 0 {
            self.in_use.remove(&tree);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATOR: Caller = Caller::Operator;

    #[test]
    fn placements_keep_their_numbers_while_they_have_groups() {
        let mut trees = StreamTrees::default();
        let [old, new, newest] = [1, 2, 3].map(Placement);
        assert_eq!(trees.number(old, &OPERATOR, 0), None);
        for _ in 0..2 {
            assert_eq!(trees.number(old, &OPERATOR, 2), Some(TreeId(0)));
            trees.take(old, &OPERATOR, TreeId(0));
        }
        assert_eq!(trees.number(new, &OPERATOR, 2), Some(TreeId(1)));
        assert_eq!(trees.number(new, &OPERATOR, 1), None, "a node with one tree has none to spare");
        trees.take(new, &OPERATOR, TreeId(1));
        assert_eq!(trees.number(newest, &OPERATOR, 2), None);
        trees.give_back(TreeId(0));
        assert_eq!(trees.number(newest, &OPERATOR, 2), None, "a group of the old placement stands");
        trees.give_back(TreeId(0));
        assert_eq!(trees.number(newest, &OPERATOR, 2), Some(TreeId(0)));
    }
    #[test]
    fn tenants_share_no_lock() {
        let mut trees = StreamTrees::default();
        let one = Caller::Tenant("one".into());
        let placement = Placement(1);
        trees.take(placement, &OPERATOR, TreeId(0));
        assert_eq!(trees.number(placement, &one, 2), Some(TreeId(1)));
        assert_eq!(trees.number(placement, &one, 1), None);
        trees.take(placement, &one, TreeId(1));
        assert_eq!(trees.number(placement, &one, 2), Some(TreeId(1)));
        assert_eq!(trees.number(placement, &OPERATOR, 2), Some(TreeId(0)));
    }
}
