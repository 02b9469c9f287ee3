//! k-nomial trees, which are binomial for radix 2.
//!
//! Ranks are numbered from the root, cyclically. In base `radix`, the number of a rank's parent is its
//! own with the lowest nonzero digit cleared. The subtree of a rank is the range up to its next
//! sibling, so folding children by digit keeps the order of these numbers.

use super::slot::{Place, Slot, power, receive, send};
use crate::step::Landing;

/// What the phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeKind {
    /// To the root, folded.
    Reduce,
    /// From the root to all.
    Broadcast,
}

/// One phase among all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub(crate) kind: TreeKind,
    pub(crate) radix: u32,
    pub(crate) root: u32,
}

impl Tree {
    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        let node = Node::new(self, place);
        match self.kind {
            TreeKind::Reduce if round < node.level => node
                .child(round, index, |child| receive(child, place.whole(), Landing::FoldAsRight)),
            TreeKind::Reduce => match (round == node.level, index, node.parent()) {
                (true, 0, Some(parent)) => send(parent, place.whole()),
                (true, 1, Some(_)) => Slot::EndOfRound,
                _ => Slot::End,
            },
            TreeKind::Broadcast => match (round, index, node.parent()) {
                (0, 0, Some(parent)) => receive(parent, place.whole(), Landing::Store),
                (0, _, _) => Slot::EndOfRound,
                // The largest subtrees first: they take longest.
                _ if round <= node.level => {
                    node.child(node.level - round, index, |child| send(child, place.whole()))
                }
                _ => Slot::End,
            },
        }
    }
}

/// A rank's position in the tree.
struct Node<'a> {
    tree: &'a Tree,
    ranks: u32,
    /// Its number, counted from the root.
    relative: u32,
    /// Levels at which it has children: the number of trailing zero digits.
    level: u32,
}

impl<'a> Node<'a> {
    fn new(tree: &'a Tree, place: &Place) -> Self {
        let relative = place.before(tree.root);
        let mut level = 0;
        while power(tree.radix, level) < u64::from(place.ranks)
            && u64::from(relative) % power(tree.radix, level + 1) == 0
        {
            level += 1;
        }
        Self { tree, ranks: place.ranks, relative, level }
    }

    fn parent(&self) -> Option<u32> {
        if self.relative == 0 {
            return None;
        }
        let digit = power(self.tree.radix, self.level + 1);
        Some(self.rank(u64::from(self.relative) - u64::from(self.relative) % digit))
    }

    fn child(&self, level: u32, index: u32, slot: impl FnOnce(u32) -> Slot) -> Slot {
        let child = u64::from(self.relative) + u64::from(index + 1) * power(self.tree.radix, level);
        if index + 1 >= self.tree.radix || child >= u64::from(self.ranks) {
            return Slot::EndOfRound;
        }
        slot(self.rank(child))
    }

    fn rank(&self, relative: u64) -> u32 {
        ((relative + u64::from(self.tree.root)) % u64::from(self.ranks)) as u32
    }
}
