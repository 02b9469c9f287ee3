//! The operation in progress, whichever kind it is.

use super::direct::Direct;
use super::operation::Operation;
use super::ring::{Awaited, Rings};
use super::running::Running;

/// An operation in progress. What it does in each step is its own; all use the same rings, and go
/// through the same number of steps at every rank.
pub(super) enum Job {
    /// Through the segment.
    Recipe(Running),
    /// From process to process.
    Direct(Direct),
}

impl Job {
    /// The first step of `operation`; none if there is nothing to do or nobody to do it with.
    pub(super) fn new(operation: Operation, rings: &Rings) -> Option<Self> {
        if Direct::suits(&operation, rings) {
            return Some(Self::Direct(Direct::new(operation, rings)));
        }
        Running::new(operation, rings.ranks).map(Self::Recipe)
    }

    /// Drives the operation until it is done or something must be awaited.
    pub(super) fn advance(&mut self, rings: &mut Rings) -> Result<(), Awaited> {
        match self {
            Self::Recipe(running) => running.advance(rings),
            Self::Direct(direct) => direct.advance(rings),
        }
    }
}
