//! Rounds in which every rank sends a growing distance further: barrier, allgather, scan.

use super::slot::{Place, Slot, power, receive, send};
use crate::split::{Span, Split};
use crate::step::Landing;

/// What the phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CyclicKind {
    /// Every rank signals one rank per round.
    Barrier,
    /// Every rank sends all parts that it has, until every rank has every part.
    Allgather,
    /// Every rank folds the prefix of an earlier rank, among the ranks from `first` on, without
    /// wrapping.
    Prefix { first: u32 },
    /// Every rank sends its vector to the next, without wrapping.
    Shift,
}

/// One phase among all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cyclic {
    pub(crate) kind: CyclicKind,
}

impl Cyclic {
    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        let distance = power(2, round);
        if distance >= u64::from(place.ranks) {
            return Slot::End;
        }
        let distance = distance as u32;
        match self.kind {
            CyclicKind::Barrier => barrier_slot(place, distance, index),
            CyclicKind::Allgather => allgather_slot(place, distance, index),
            CyclicKind::Prefix { first } if place.rank < first => Slot::End,
            CyclicKind::Prefix { first } => {
                neighbour_slot(place, first, distance, index, Landing::FoldAsLeft)
            }
            CyclicKind::Shift if round > 0 => Slot::End,
            CyclicKind::Shift => neighbour_slot(place, 0, 1, index, Landing::Store),
        }
    }
}

fn barrier_slot(place: &Place, distance: u32, index: u32) -> Slot {
    match index {
        0 => send(place.after(distance), place.whole()),
        1 => receive(place.before(distance), place.whole(), Landing::Store),
        _ => Slot::EndOfRound,
    }
}

/// A rank has `distance` parts, cyclically from its own on, and receives as many more from the rank
/// whose parts follow. A range that wraps takes two messages.
fn allgather_slot(place: &Place, distance: u32, index: u32) -> Slot {
    let parts = distance.min(place.ranks - distance);
    let pieces = |from: u32| cyclic_pieces(place, from, parts);
    let (to, from) = (place.before(distance), place.after(distance));
    match index {
        0 => send(to, pieces(place.rank).0),
        1 => send(to, pieces(place.rank).1),
        2 => receive(from, pieces(from).0, Landing::Store),
        3 => receive(from, pieces(from).1, Landing::Store),
        _ => Slot::EndOfRound,
    }
}

fn cyclic_pieces(place: &Place, from: u32, parts: u32) -> (Span, Span) {
    let (from, parts, ranks) = (u64::from(from), u64::from(parts), u64::from(place.ranks));
    let split = Split::new(place.elements, ranks);
    let end = from + parts;
    if end <= ranks {
        (split.range(from, end), Span::default())
    } else {
        (split.range(from, ranks), split.range(0, end - ranks))
    }
}

fn neighbour_slot(place: &Place, first: u32, distance: u32, index: u32, landing: Landing) -> Slot {
    match index {
        0 if place.ranks - place.rank > distance => send(place.rank + distance, place.whole()),
        1 if place.rank - first >= distance => {
            receive(place.rank - distance, place.whole(), landing)
        }
        0 | 1 => Slot::Nothing,
        _ => Slot::EndOfRound,
    }
}
