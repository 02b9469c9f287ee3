//! Operations that are posted: a rank does its part in one call, and takes its result in another.

use super::copy::copy_short;
use super::exchange::Exchange;
use super::failure::Lost;
use super::group::HostGroup;
use super::job::Job;
use super::operation::{Action, Operation};
use super::segment::{EXCHANGE_RING, RINGS};

/// What a rank owes the others in an operation that it has [posted](HostGroup::post).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// They can end theirs whether this rank goes on or not; this one's result is taken by
    /// [`complete`](HostGroup::complete) or [`poll`](HostGroup::poll). Later operations may still
    /// need it out of the way.
    OwesNothing,
    /// It has to be driven.
    OwesMore,
}

impl HostGroup {
    /// Begins an operation and takes it as far as it goes without waiting.
    ///
    /// # Errors
    /// A rank was lost earlier.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// As [`start`](Self::start).
    #[inline]
    pub unsafe fn post(&mut self, operation: &Operation) -> Result<Posted, Lost> {
        // SAFETY: this function's contract is that of `start`, which is the callee's.
        if unsafe { self.post_exchange(operation) } {
            return Ok(Posted::OwesNothing);
        }
        // SAFETY: as above.
        unsafe { self.post_staged(*operation) }
    }

    /// [`post`](Self::post) for operations of any kind.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    unsafe fn post_staged(&mut self, operation: Operation) -> Result<Posted, Lost> {
        // SAFETY: this function's contract is that of `start`.
        unsafe { self.start(operation)? };
        if self.advance().is_ok() {
            return self.liveness.known().map(|()| Posted::OwesNothing);
        }
        let owes_nothing = match &self.running {
            Some(Job::Staged(running)) => running.owes_nothing(),
            _ => false,
        };
        Ok(if owes_nothing { Posted::OwesNothing } else { Posted::OwesMore })
    }

    /// Posts a short allreduce or barrier of two ranks. `false` if it is none, or cannot begin at once:
    /// nothing has been done then.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    #[inline]
    unsafe fn post_exchange(&mut self, operation: &Operation) -> bool {
        let &Operation { source, target, len_bytes, .. } = operation;
        let (kernel, shortest) = match operation.action {
            Action::Allreduce(kernel) => (Some(kernel), 1),
            Action::Barrier => (None, 0),
            _ => return false,
        };
        let fits = (shortest..=RINGS[EXCHANGE_RING].capacity_bytes).contains(&len_bytes);
        if self.rings.ranks != 2 || !fits || !self.is_ready() {
            return false;
        }
        if kernel.is_some() {
            // SAFETY: `source` is valid for `len_bytes` by the contract of `start`, and no caller's
            // buffer lies in the segment; an exchange slot is free in its step, and `own_slot` gives
            // its only slice.
            unsafe { copy_short(source, self.rings.own_slot(EXCHANGE_RING, len_bytes)) };
        }
        self.rings.publish(EXCHANGE_RING, len_bytes);
        self.running = Some(Job::Exchange(Exchange { kernel, source, target, len_bytes }));
        true
    }

    /// Waits for the exchange in progress.
    #[inline]
    pub(super) fn complete_exchange(&mut self, exchange: Exchange) -> Result<(), Lost> {
        self.await_exchange()?;
        // SAFETY: `await_exchange` has seen the peer's flag.
        unsafe { exchange.take(&mut self.rings) };
        self.running = None;
        Ok(())
    }
}
