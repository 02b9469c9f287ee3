//! What one rank does, one step after the other, and which steps may overlap.
//!
//! # What an executor promises
//!
//! A rank has a *vector* as long as the operation, which holds its contribution at first and its
//! result at the end (for a broadcast, only the root's counts at first), and, for the few schedules
//! whose [`Schedule::needs_aside`](crate::Schedule::needs_aside) says so, a second one *aside*.
//! At ranks that get no result, the vector is working space and ends with partial results in it.
//!
//! 1. Messages from one rank to another arrive in the order in which they were sent, whole.
//! 2. Steps come in order, and those that change a buffer (the landing of a [`Action::Receive`], and
//!    [`Action::Fold`]) happen in that order wherever they touch the same elements.
//! 3. A send reads its span after all earlier steps that change it, and before any later one.
//! 4. No send waits for its receiver: a rank whose send has not got through goes on to its receives.
//!
//! The plainest executor walks the steps one by one with sends that copy, and is correct.
//!
//! # What may overlap
//!
//! Everything within one [`Step::round`], under the promises above: its sends come first and don't
//! depend on its receives; its receives can all be under way at once, and only their landings keep
//! their order where their spans meet. A send may also go on through later rounds until a step
//! changes its span; only in recursive doubling and k-ing is that the same round. A round's sends may
//! depend on every receive of earlier rounds. Round numbers are a rank's own: equal numbers at two
//! ranks mean nothing.

use crate::split::Span;

/// One step of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Steps of the same round may overlap; never decreases along a schedule.
    pub round: u32,
    /// What to do.
    pub action: Action,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends a range of the vector. An empty range is a message too: a barrier's.
    Send {
        /// The receiving rank.
        to: u32,
        /// Which elements of the vector.
        span: Span,
    },
    /// Receives a range of as many elements as its sender sends.
    Receive {
        /// The sending rank.
        from: u32,
        /// Which elements of `buffer` it is about.
        span: Span,
        /// Whose elements those are.
        buffer: Buffer,
        /// What to do with what arrives.
        landing: Landing,
    },
    /// Folds the buffer aside into the vector, as left operand: `vector = aside op vector`.
    Fold {
        /// Which elements of both.
        span: Span,
    },
}

/// A rank's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Contribution at first, result at the end.
    Vector,
    /// As long as the vector; holds nothing at first, and nothing of worth at the end.
    Aside,
}

/// What becomes of a received range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// It replaces what was there.
    Store,
    /// `buffer = received op buffer`.
    FoldAsLeft,
    /// `buffer = buffer op received`.
    FoldAsRight,
}
