//! What the starter of a nonblocking operation and the engine that runs it share.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::engine::Gathered;
use crate::operation::CollectiveError;

const PENDING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;
/// The engine is done; what it has gathered is yet to be combined.
const GATHERED: u8 = 3;

/// What the starter and the engine share.
#[derive(Default)]
pub(crate) struct RequestState {
    /// `PENDING`, `DONE`, `FAILED` or `GATHERED`.
    progress: AtomicU8,
    /// Why it has failed.
    error: Mutex<Option<CollectiveError>>,
    /// Of a reduction whose vectors are gathered: as long as anybody may use its memory.
    gathered: Option<Gathered>,
    /// Held by the thread that combines.
    combining: Mutex<()>,
}

impl RequestState {
    /// Of a reduction whose vectors are gathered.
    pub(crate) fn gathering(gathered: Gathered) -> Self {
        Self { gathered: Some(gathered), ..Self::default() }
    }

    /// Whether it is one whose vectors are gathered.
    pub(crate) fn is_gathering(&self) -> bool {
        self.gathered.is_some()
    }

    /// The operation is over. Only the engine says so, and once for every start.
    pub(crate) fn finish(&self, result: Result<(), CollectiveError>) {
        let progress = match result {
            Ok(()) if self.gathered.is_some() => GATHERED,
            Ok(()) => DONE,
            Err(error) => {
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                FAILED
            }
        };
        // Release: pairs with the Acquire in `outcome`; results in buffers come before it.
        self.progress.store(progress, Ordering::Release);
    }

    /// The result, once there is one. Combines what was gathered, so only threads of the caller's may ask.
    pub(crate) fn outcome(&self) -> Option<Result<(), CollectiveError>> {
        // Acquire: pairs with the Release in `finish`.
        match self.progress.load(Ordering::Acquire) {
            PENDING => None,
            DONE => Some(Ok(())),
            GATHERED => Some(self.combine()),
            _ => {
                let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Some(Err(error.expect("a failed request has an error")))
            }
        }
    }

    #[cold]
    fn combine(&self) -> Result<(), CollectiveError> {
        let _alone = self.combining.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: the lock orders those who combine.
        if let Some(gathered) = &self.gathered
            && self.progress.load(Ordering::Relaxed) == GATHERED
        {
            // SAFETY: the engine has said that its part is over, and target and combiner are valid until
            // the first `DONE`, as the caller of `Communicator::start` promised. The lock keeps others out.
            unsafe { gathered.combine() };
            // Release: pairs with the Acquire in `outcome`; the result comes before it.
            self.progress.store(DONE, Ordering::Release);
        }
        Ok(())
    }

    /// The same operation begins once more. Nobody may be waiting for it.
    #[inline]
    pub(crate) fn reset(&self) {
        // Relaxed: a thread that waits for the new start learns of it from its starter.
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
