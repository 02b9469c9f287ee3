//! An operation that is started many times, as its engine keeps it.

use std::sync::Arc;

use tributary_shm_collectives as shm;

use crate::operation::Operation;
use crate::request_state::RequestState;
use crate::selection::Path;

/// Which of an engine's prepared operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreparedNumber(pub(super) usize);

/// An operation, and what every start of it needs.
pub(super) struct PreparedOperation {
    pub(super) operation: Operation,
    pub(super) path: Path,
    /// What it does in shared memory; none if it takes anything else too.
    pub(super) stage: Option<shm::Operation>,
    pub(super) state: Arc<RequestState>,
}

// SAFETY: the pointers of the stage are the operation's own; see `Operation`.
unsafe impl Send for PreparedOperation {}
