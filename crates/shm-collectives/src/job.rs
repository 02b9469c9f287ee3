//! The operation in progress, whichever kind it is.

use super::allgather::Allgather;
use super::copy::copy;
use super::direct::Direct;
use super::exchange::Exchange;
use super::operation::{Action, Operation};
use super::reduce_scatter::ReduceScatter;
use super::ring::{Awaited, Rings};
use super::rounds::Rounds;
use super::scan::{Chain, Prefixes};
use super::scatter::Scatter;
use super::staged::Staged;

/// An operation in progress. What it does in each step is its own; all use the same rings, and go
/// through the same number of steps at every rank.
pub(super) enum Job {
    /// Allreduce, reduce, broadcast, transfer and barrier, through the segment.
    Staged(Staged),
    /// What is left of a short allreduce or barrier of two ranks that was posted.
    Exchange(Exchange),
    /// Long ones of these, from process to process.
    Direct(Direct),
    /// Allgather, and gather.
    Allgather(Rounds<Allgather>),
    /// Reduce-scatter.
    ReduceScatter(Rounds<ReduceScatter>),
    /// Scatter.
    Scatter(Rounds<Scatter>),
    /// A scan in which every rank reads all those before it.
    Prefixes(Rounds<Prefixes>),
    /// A scan in which every rank reads the one before it.
    Chain(Chain),
}

impl Job {
    /// The first step of `operation`; none if there is nothing to do or nobody to do it with.
    pub(super) fn new(operation: Operation, rings: &Rings) -> Option<Self> {
        let ranks = rings.ranks;
        let is_further = matches!(
            operation.action,
            Action::Allgather
                | Action::Gather { .. }
                | Action::ReduceScatter { .. }
                | Action::Scatter { .. }
                | Action::Scan { .. }
        );
        if is_further && operation.len_bytes == 0 {
            return None;
        }
        if is_further && ranks == 1 {
            copy_alone(&operation);
            return None;
        }
        match operation.action {
            Action::Allgather => {
                Some(Self::Allgather(Rounds::new(Allgather::new(operation, ranks))))
            }
            Action::Gather { to } => {
                Some(Self::Allgather(Rounds::new(Allgather::to(to, operation))))
            }
            Action::Scatter { from, element_bytes, blocks } => {
                // SAFETY: the buffers and the blocks are valid until the operation is over, by the
                // contract of `start`.
                let scatter =
                    unsafe { Scatter::new(operation, from, blocks, element_bytes, ranks) };
                Some(Self::Scatter(Rounds::new(scatter)))
            }
            Action::ReduceScatter { kernel, blocks } => {
                // SAFETY: the buffers and the blocks are valid until the operation is over, by the
                // contract of `start`.
                let reduce_scatter =
                    unsafe { ReduceScatter::new(operation, kernel, blocks, rings) };
                Some(Self::ReduceScatter(Rounds::new(reduce_scatter)))
            }
            Action::Scan { kernel, inclusive } => {
                Some(if Chain::suits(&operation, kernel, ranks) {
                    Self::Chain(Chain::new(operation, kernel, inclusive, rings))
                } else {
                    Self::Prefixes(Rounds::new(Prefixes::new(operation, kernel, inclusive)))
                })
            }
            _ if Direct::suits(&operation, rings) => {
                Some(Self::Direct(Direct::new(operation, rings)))
            }
            _ => Staged::new(operation, ranks).map(Self::Staged),
        }
    }

    /// Drives the operation until it is done or something must be awaited.
    pub(super) fn advance(&mut self, rings: &mut Rings) -> Result<(), Awaited> {
        match self {
            Self::Staged(running) => running.advance(rings),
            Self::Exchange(exchange) => exchange.advance(rings),
            Self::Direct(direct) => direct.advance(rings),
            Self::Allgather(rounds) => rounds.advance(rings),
            Self::Scatter(rounds) => rounds.advance(rings),
            Self::ReduceScatter(rounds) => rounds.advance(rings),
            Self::Prefixes(rounds) => rounds.advance(rings),
            Self::Chain(chain) => chain.advance(rings),
        }
    }
}

/// What a rank alone has to do: its contribution is its result, if it has one.
fn copy_alone(operation: &Operation) {
    let has_result =
        !matches!(operation.action, Action::Scan { inclusive: false, .. } | Action::Scatter { .. });
    if has_result && operation.source != operation.target.cast_const() {
        // SAFETY: both are valid for `len_bytes`, and do not overlap, by the contract of `start`;
        // that they are not one is checked above.
        unsafe { copy(operation.source, operation.target, operation.len_bytes) };
    }
}
