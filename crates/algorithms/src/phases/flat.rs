//! One rank and all others of a range of ranks: reduce, broadcast, gather and scatter.

use super::{Place, Slot, receive, send};
use crate::split::{Span, Split};
use crate::step::{Action, Buffer, Landing};

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlatWay {
    /// To the root, folded in rank order.
    Fold,
    /// From the root to all.
    Spread,
    /// Each rank's part to the root.
    Gather,
    /// Each rank's part from the root.
    Scatter,
}

/// One phase over the ranks `first..first + count`, of which `root` is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flat {
    pub(crate) way: FlatWay,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) root: u32,
}

impl Flat {
    pub(crate) fn whole(way: FlatWay, root: u32, ranks: u32) -> Self {
        Self { way, first: 0, count: ranks, root }
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
        match self.way {
            FlatWay::Fold | FlatWay::Gather => send(self.root, span),
            FlatWay::Spread | FlatWay::Scatter => receive(self.root, span, Landing::Store),
        }
    }

    fn root_slot(&self, place: &Place, index: u32) -> Slot {
        if index >= self.count {
            return Slot::EndOfRound;
        }
        let peer = self.first + index;
        let span = self.span(place, peer);
        match (self.way, peer == self.root) {
            (FlatWay::Fold, _) => fold_slot(peer, index, self.root - self.first, span),
            (_, true) => Slot::Nothing,
            (FlatWay::Gather, false) => receive(peer, span, Landing::Store),
            (FlatWay::Spread | FlatWay::Scatter, false) => send(peer, span),
        }
    }

    fn span(&self, place: &Place, rank: u32) -> Span {
        match self.way {
            FlatWay::Fold | FlatWay::Spread => place.whole(),
            FlatWay::Gather | FlatWay::Scatter => {
                Split::new(place.elements, u64::from(place.ranks)).part(u64::from(rank))
            }
        }
    }
}

/// What rank `own` of a range does with the contribution of rank `index`, known to its peers as
/// `peer`, so that all of them together are `((v0 op v1) op v2) ...`: what comes before its own gathers
/// aside, is folded in when its own turn comes, and what comes after is folded in at once.
pub(super) fn fold_slot(peer: u32, index: u32, own: u32, span: Span) -> Slot {
    let aside =
        |landing| Slot::Do(Action::Receive { from: peer, span, buffer: Buffer::Aside, landing });
    match (index, own) {
        // Alone before its own, it needs no gathering.
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
