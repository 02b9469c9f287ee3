//! Operations that are posted: a rank does its part in one call, and takes its result in another.

use std::mem;

use super::combine::Combine;
use super::exchange::Exchange;
use super::failure::Lost;
use super::group::HostGroup;
use super::job::Job;
use super::operation::Operation;
use super::segment::EXCHANGE_RING;

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
    pub unsafe fn post(&mut self, operation: &Operation) -> Result<Posted, Lost> {
        // SAFETY: this function's contract is that of `start`, which is the callee's.
        if self.exchange(operation).is_some_and(|exchange| unsafe { self.post_exchange(&exchange) })
        {
            return Ok(Posted::OwesNothing);
        }
        // SAFETY: this function's contract is that of `start`.
        unsafe { self.start(*operation)? };
        if self.advance().is_ok() {
            return self.liveness.check_known().map(|()| Posted::OwesNothing);
        }
        let owes_nothing = match &self.running {
            Some(Job::Staged(running)) => running.owes_nothing(),
            _ => false,
        };
        Ok(if owes_nothing { Posted::OwesNothing } else { Posted::OwesMore })
    }

    /// What an operation is as an exchange; none if it is another, or among other than two ranks.
    #[must_use]
    pub fn exchange(&self, operation: &Operation) -> Option<Exchange> {
        if self.rings.ranks == 2 { Exchange::of(operation) } else { None }
    }

    /// Posts an exchange, in which this rank then owes nothing. `false` if it cannot begin at once: nothing
    /// has been done then.
    ///
    /// # Safety
    /// As [`start`](Self::start). The exchange is of this group.
    #[inline]
    pub unsafe fn post_exchange(&mut self, exchange: &Exchange) -> bool {
        if !self.is_ready() {
            return false;
        }
        let &Exchange { kernel, source, len_bytes, .. } = exchange;
        self.rings.begin(exchange.call);
        if kernel.is_some() {
            // SAFETY: `source` is valid for `len_bytes` by the contract of `start`, and no caller's
            // buffer lies in the segment; an exchange slot is free in its step.
            unsafe { self.rings.fill(EXCHANGE_RING, source, len_bytes) };
        } else {
            self.rings.publish(EXCHANGE_RING, len_bytes);
        }
        // Nothing runs, so nothing is dropped.
        mem::forget(self.running.replace(Job::Exchange(*exchange)));
        true
    }

    /// Waits for the operation in progress, if it is an exchange, which has this kernel: the caller knows its
    /// type. `false` if it is none, or a rank was lost: [`complete`](Self::complete) then says which.
    #[inline]
    pub fn complete_exchange(&mut self, kernel: Option<&(impl Combine + ?Sized)>) -> bool {
        let Some(Job::Exchange(exchange)) = self.running else { return false };
        if self.await_exchange().is_err() {
            return false;
        }
        // SAFETY: `await_exchange` has seen the peer's flag.
        unsafe { exchange.take(kernel, &mut self.rings) };
        // There is nothing in an exchange to drop.
        mem::forget(self.running.take());
        true
    }
}
