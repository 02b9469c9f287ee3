//! What the starter of a nonblocking operation and the engine that runs it share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::operation::CollectiveError;

/// What the starter and the engine share.
#[derive(Default)]
pub(crate) struct RequestState {
    is_done: AtomicBool,
    result: OnceLock<Result<(), CollectiveError>>,
}

impl RequestState {
    /// The operation is over.
    pub(crate) fn finish(&self, result: Result<(), CollectiveError>) {
        // Only the engine finishes, and only once.
        let _ = self.result.set(result);
        // Release: pairs with the Acquire in `outcome`; results in buffers come before it.
        self.is_done.store(true, Ordering::Release);
    }

    /// The result, once there is one.
    pub(crate) fn outcome(&self) -> Option<Result<(), CollectiveError>> {
        // Acquire: pairs with the Release in `finish`.
        self.is_done
            .load(Ordering::Acquire)
            .then(|| self.result.get().cloned().expect("a finished request has a result"))
    }
}
