//! One rank and all others of a range of ranks: reduce, broadcast, gather and scatter.

use super::slot::{Place, Slot, receive, send};
use crate::split::{Span, Split};
use crate::step::{Action, Buffer, Landing};

/// What the phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlatKind {
    /// To the root, folded in rank order.
    Reduce,
    /// From the root to all.
    Broadcast,
    /// Each rank's part to the root.
    Gather,
    /// Each rank's part from the root.
    Scatter,
}

/// One phase over the ranks `first..first + count`, of which `root` is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flat {
    pub(crate) kind: FlatKind,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) root: u32,
}

impl Flat {
    pub(crate) fn whole(kind: FlatKind, root: u32, ranks: u32) -> Self {
        Self { kind, first: 0, count: ranks, root }
    }

    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        if round > 0 {
            return Slot::End;
        }
        if place.rank == self.root {
            return self.root_slot(place, index);
        }
        if index > 0 {
            return Slot::EndOfRound;
        }
        let span = self.span(place, place.rank);
        match self.kind {
            FlatKind::Reduce | FlatKind::Gather => send(self.root, span),
            FlatKind::Broadcast | FlatKind::Scatter => receive(self.root, span, Landing::Store),
        }
    }

    fn root_slot(&self, place: &Place, index: u32) -> Slot {
        if index >= self.count {
            return Slot::EndOfRound;
        }
        let peer = self.first + index;
        let span = self.span(place, peer);
        match (self.kind, peer == self.root) {
            (FlatKind::Reduce, _) => fold_slot(peer, index, self.root - self.first, span),
            (_, true) => Slot::Nothing,
            (FlatKind::Gather, false) => receive(peer, span, Landing::Store),
            (FlatKind::Broadcast | FlatKind::Scatter, false) => send(peer, span),
        }
    }

    fn span(&self, place: &Place, rank: u32) -> Span {
        match self.kind {
            FlatKind::Reduce | FlatKind::Broadcast => place.whole(),
            FlatKind::Gather | FlatKind::Scatter => {
                Split::new(place.elements, u64::from(place.ranks)).part(u64::from(rank))
            }
        }
    }
}

/// What rank `own` of a range does with the contribution of rank `index`, whose rank number is `peer`,
/// so that the result is `((v0 op v1) op v2) ...`. Contributions before its own are folded in the
/// buffer aside. At `index == own`, that buffer is folded into the vector. Later contributions are
/// folded into the vector at once.
pub(super) fn fold_slot(peer: u32, index: u32, own: u32, span: Span) -> Slot {
    let aside =
        |landing| Slot::Do(Action::Receive { from: peer, span, buffer: Buffer::Aside, landing });
    match (index, own) {
        // A single contribution before its own needs no second buffer.
        (0, 1) => receive(peer, span, Landing::FoldAsLeft),
        (1, 1) | (0, 0) => Slot::Nothing,
        (0, _) => aside(Landing::Store),
        _ if index < own => aside(Landing::FoldAsRight),
        _ if index == own => Slot::Do(Action::Fold { span }),
        _ => receive(peer, span, Landing::FoldAsRight),
    }
}

/// One rank hands its whole vector to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Hop {
    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        match (round, index) {
            (0, 0) if place.rank == self.from => send(self.to, place.whole()),
            (0, 0) if place.rank == self.to => receive(self.from, place.whole(), Landing::Store),
            _ => Slot::End,
        }
    }
}
