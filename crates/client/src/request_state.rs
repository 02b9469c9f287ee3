//! What the starter of a nonblocking operation and the engine that runs it share.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::operation::CollectiveError;

const PENDING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// What the starter and the engine share.
#[derive(Default)]
pub(crate) struct RequestState {
    /// `PENDING`, `DONE` or `FAILED`.
    progress: AtomicU8,
    /// Why it has failed.
    error: Mutex<Option<CollectiveError>>,
}

impl RequestState {
    /// The operation is over. Only the engine says so, and once for every start.
    pub(crate) fn finish(&self, result: Result<(), CollectiveError>) {
        let progress = match result {
            Ok(()) => DONE,
            Err(error) => {
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                FAILED
            }
        };
        // Release: pairs with the Acquire in `outcome`; results in buffers come before it.
        self.progress.store(progress, Ordering::Release);
    }

    /// The result, once there is one.
    pub(crate) fn outcome(&self) -> Option<Result<(), CollectiveError>> {
        // Acquire: pairs with the Release in `finish`.
        match self.progress.load(Ordering::Acquire) {
            PENDING => None,
            DONE => Some(Ok(())),
            _ => {
                let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Some(Err(error.expect("a failed request has an error")))
            }
        }
    }

    /// The same operation begins once more. Nobody may be waiting for it.
    #[inline]
    pub(crate) fn reset(&self) {
        // Relaxed: whoever waits for the new start learns of it from its starter.
        self.progress.store(PENDING, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_its_own_outcome() {
        let state = RequestState::default();
        let failed = || CollectiveError::NoSuchPair { number: 7 };
        state.finish(Err(failed()));
        assert_eq!(state.outcome(), Some(Err(failed())));
        state.reset();
        assert_eq!(state.outcome(), None);
        state.finish(Ok(()));
        assert_eq!(state.outcome(), Some(Ok(())));
    }
}
