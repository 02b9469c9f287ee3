//! The steps of one rank, and which of them may overlap.
//!
//! # What an executor must do
//!
//! A rank has a *vector* of the operation's length. It holds the rank's contribution at first (of a
//! broadcast, the root's) and the result at the end. A rank also has, for the few schedules
//! for which [`Schedule::needs_aside`](crate::Schedule::needs_aside) holds, a second buffer *aside*.
//! At ranks that get no result, the vector is working space and ends with partial results.
//!
//! 1. Messages from one rank to another arrive in the order in which they were sent, whole.
//! 2. Steps come in order, and those that change a buffer (the landing of a [`Action::Receive`], and
//!    [`Action::Fold`]) happen in that order wherever they touch the same elements.
//! 3. A send reads its span after all earlier steps that change it, and before any later one.
//! 4. No send waits for its receiver: a rank with an unfinished send proceeds to its receives.
//!
//! An executor that runs the steps one by one, with sends that copy, is correct. An executor that sends
//! from the vector itself can deadlock: two ranks that exchange a long message would each wait for the
//! other to take it before they store what has arrived. It must either store the message piece by
//! piece, each as soon as the same elements are sent, or copy what is still to be sent.
//!
//! # What may overlap
//!
//! All steps of one [`Step::round`], under the rules above. A round's sends come first and don't depend
//! on its receives. Its receives can all be in progress at once; only their landings keep their order
//! where their spans overlap. A send may also continue through later rounds, until a step changes its
//! span; only in recursive doubling, in k-ing and in exchanges over levels does that happen in the same
//! round. A round's sends may
//! depend on every receive of earlier rounds. Round numbers are local: equal numbers at two ranks have
//! no relation.

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
        /// Which elements of `buffer`.
        span: Span,
        /// The buffer that changes.
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
    /// The contribution at first, the result at the end.
    Vector,
    /// A second buffer of the vector's length. Its content is undefined at first and unused at the end.
    Aside,
}

/// What an executor does with a received range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// Overwrites the buffer.
    Store,
    /// `buffer = received op buffer`.
    FoldAsLeft,
    /// `buffer = buffer op received`.
    FoldAsRight,
}
