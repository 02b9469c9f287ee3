//! What every phase gives and is given: a slot of a round, and the rank's place.

use crate::split::Span;
use crate::step::{Action, Buffer, Landing};

/// A rank, the number of ranks, and the length of the vector.
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

/// The content of one index of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A step.
    Do(Action),
    /// No step, but more may follow in this round.
    Nothing,
    /// The round is over.
    EndOfRound,
    /// The phase is over.
    End,
}

pub(super) fn send(to: u32, span: Span) -> Slot {
    Slot::Do(Action::Send { to, span })
}

pub(super) fn receive(from: u32, span: Span, landing: Landing) -> Slot {
    Slot::Do(Action::Receive { from, span, buffer: Buffer::Vector, landing })
}

/// `base` to the power of `exponent`, or as much as fits.
pub(super) fn power(base: u32, exponent: u32) -> u64 {
    u64::from(base).saturating_pow(exponent)
}
