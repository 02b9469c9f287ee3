//! Around a ring, one part of the vector per round.

use super::slot::{Place, Slot, receive, send};
use crate::split::{Span, Split};
use crate::step::Landing;

/// What the phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    /// Folds: rank r ends with part r, reduced.
    ReduceScatter,
    /// Copies: from part r at rank r to all parts at all ranks. One rank may have all of them before, and is
    /// sent none (Zhou et al., A Bandwidth-Saving Optimization for MPI Broadcast Collective Operation, P2S2 2015).
    Allgather { complete: Option<u32> },
}

/// One phase among all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) kind: RingKind,
}

impl Ring {
    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        if round + 1 >= place.ranks {
            return Slot::End;
        }
        let (lag, landing, complete) = match self.kind {
            RingKind::ReduceScatter => (1, Landing::FoldAsLeft, None),
            RingKind::Allgather { complete } => (0, Landing::Store, complete),
        };
        match index {
            0 if complete == Some(place.after(1)) => Slot::Nothing,
            1 if complete == Some(place.rank) => Slot::Nothing,
            0 => send(place.after(1), part(place, round + lag)),
            1 => receive(place.before(1), part(place, round + lag + 1), landing),
            _ => Slot::EndOfRound,
        }
    }
}

/// The part whose number is `back` below this rank's, cyclically.
fn part(place: &Place, back: u32) -> Span {
    Split::new(place.elements, u64::from(place.ranks)).part(u64::from(place.before(back)))
}
