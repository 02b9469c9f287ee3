//! The parts that schedules are made of.
//!
//! A phase is a pure function from (round, index) to what this rank does there. A schedule's whole
//! state is therefore a few counters, and a phase's rounds can be read in any order.

mod blocks;
mod cyclic;
mod exchange;
mod flat;
mod halving;
mod levels;
mod ring;
mod slot;
mod tree;

pub(crate) use blocks::Blocks;
pub(crate) use cyclic::{Cyclic, CyclicKind};
pub(crate) use exchange::Exchange;
pub(crate) use flat::{Flat, FlatKind, Hop};
pub(crate) use halving::{Halving, HalvingKind};
pub(crate) use levels::{Levels, LevelsKind};
pub(crate) use ring::{Ring, RingKind};
pub(crate) use slot::{Place, Slot};
pub(crate) use tree::{Tree, TreeKind};

/// One phase of a schedule.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Flat(Flat),
    Hop(Hop),
    Exchange(Exchange),
    Halving(Halving),
    Levels(Levels),
    Ring(Ring),
    Tree(Tree),
    Cyclic(Cyclic),
}

impl Phase {
    /// Whether some step at this rank may use [`Buffer::Aside`](crate::Buffer::Aside): a phase needs it
    /// to combine more than one operand that precedes the rank's own.
    pub(crate) fn needs_aside(&self, place: &Place) -> bool {
        match self {
            Self::Flat(Flat { kind: FlatKind::Reduce, first, root, .. }) => {
                *root == place.rank && root - first >= 2
            }
            Self::Exchange(Exchange { radix, .. }) => *radix > 2,
            Self::Levels(phase) => phase.needs_aside(place),
            _ => false,
        }
    }

    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        match self {
            Self::Flat(phase) => phase.slot(place, round, index),
            Self::Hop(phase) => phase.slot(place, round, index),
            Self::Exchange(phase) => phase.slot(place, round, index),
            Self::Halving(phase) => phase.slot(place, round, index),
            Self::Levels(phase) => phase.slot(place, round, index),
            Self::Ring(phase) => phase.slot(place, round, index),
            Self::Tree(phase) => phase.slot(place, round, index),
            Self::Cyclic(phase) => phase.slot(place, round, index),
        }
    }
}
