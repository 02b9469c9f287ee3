//! An operation that is started many times, as its engine keeps it.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tributary_shm_collectives as shm;

use crate::operation::Operation;
use crate::request_state::RequestState;
use tributary_inter_host::Adapter;
use tributary_selection::Path;

/// Which of an engine's prepared operations, counted from 1: so that comparing an optional one is one
/// comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreparedNumber(NonZeroUsize);

impl PreparedNumber {
    pub(super) fn of_place(place: usize) -> Self {
        Self(NonZeroUsize::MIN.saturating_add(place))
    }

    pub(super) fn place(self) -> usize {
        self.0.get() - 1
    }
}

/// An operation, and what every start of it needs.
pub(super) struct PreparedOperation {
    pub(super) operation: Operation,
    pub(super) path: Path,
    /// What it does in shared memory; none if it takes anything else too.
    pub(super) stage: Option<shm::Operation>,
    pub(super) state: Arc<RequestState>,
}

/// An operation that is an exchange of two ranks in shared memory, as its owner keeps it: with that, a start
/// and a wait take the fewest instructions.
pub(crate) struct PreparedExchange {
    pub(super) number: PreparedNumber,
    pub(super) exchange: shm::Exchange,
    /// None for a barrier.
    pub(super) kernel: Option<&'static Adapter>,
}

// SAFETY: the pointers of the stage are the operation's own; see `Operation`.
unsafe impl Send for PreparedOperation {}
