//! The parts that schedules are made of.
//!
//! A phase is a pure function from (round, index) to what this rank does there. That keeps it without
//! state, so that a schedule's whole state is two counters, and makes a phase's rounds readable in
//! any order.

mod blocks;
mod chain;
mod cyclic;
mod exchange;
mod flat;
mod halving;
mod ring;
mod tree;

pub(crate) use blocks::Blocks;
pub(crate) use chain::{Chain, ChainWay};
pub(crate) use cyclic::{Cyclic, CyclicWay};
pub(crate) use exchange::Exchange;
pub(crate) use flat::{Flat, FlatWay, Hop};
pub(crate) use halving::{Halving, HalvingWay};
pub(crate) use ring::{Ring, RingWay};
pub(crate) use tree::{Tree, TreeWay};

use crate::split::Span;
use crate::step::{Action, Buffer, Landing};

/// Which rank of how many, and the vector's length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) elements: u64,
}

impl Place {
    pub(crate) fn whole(&self) -> Span {
        Span::between(0, self.elements)
    }

    /// The rank `distance` further on, cyclically.
    pub(crate) fn after(&self, distance: u32) -> u32 {
        ((u64::from(self.rank) + u64::from(distance)) % u64::from(self.ranks)) as u32
    }

    /// The rank `distance` further back, cyclically.
    pub(crate) fn before(&self, distance: u32) -> u32 {
        self.after(self.ranks - distance % self.ranks)
    }
}

/// What stands at one index of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A step.
    Do(Action),
    /// Nothing, but more may follow in this round.
    Nothing,
    /// The round is over.
    EndOfRound,
    /// The phase is over.
    End,
}

/// One phase of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    Flat(Flat),
    Hop(Hop),
    Exchange(Exchange),
    Halving(Halving),
    Ring(Ring),
    Tree(Tree),
    Chain(Chain),
    Cyclic(Cyclic),
}

impl Phase {
    /// Whether some step at this rank may use the buffer aside: those that combine more than one
    /// operand from before its own.
    pub(crate) fn needs_aside(&self, place: &Place) -> bool {
        match self {
            Self::Flat(Flat { way: FlatWay::Fold, first, root, .. }) => {
                *root == place.rank && root - first >= 2
            }
            Self::Exchange(Exchange { radix, .. }) => *radix > 2,
            _ => false,
        }
    }

    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        match self {
            Self::Flat(phase) => phase.slot(place, round, index),
            Self::Hop(phase) => phase.slot(place, round, index),
            Self::Exchange(phase) => phase.slot(place, round, index),
            Self::Halving(phase) => phase.slot(place, round, index),
            Self::Ring(phase) => phase.slot(place, round, index),
            Self::Tree(phase) => phase.slot(place, round, index),
            Self::Chain(phase) => phase.slot(place, round, index),
            Self::Cyclic(phase) => phase.slot(place, round, index),
        }
    }
}

fn send(to: u32, span: Span) -> Slot {
    Slot::Do(Action::Send { to, span })
}

fn receive(from: u32, span: Span, landing: Landing) -> Slot {
    Slot::Do(Action::Receive { from, span, buffer: Buffer::Vector, landing })
}

/// `base` to the power of `exponent`, or as much as fits.
fn power(base: u32, exponent: u32) -> u64 {
    u64::from(base).saturating_pow(exponent)
}
