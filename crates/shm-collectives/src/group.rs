//! The group: one operation at a time, step by step.

use std::task::Poll;
use std::time::Duration;

use rustix::time::Timespec;

use super::failure::{Lost, LostCause};
use super::job::Job;
use super::liveness::Watch;
use super::operation::{Action, Operation};
use super::reach::Reach;
use super::ring::{Awaited, Rings};
use super::segment::Segment;
use super::sync::Ordering;
use super::waiting::{Checkup, EAGER_LOOKS, Policy, Waiter};

/// Longest time a waiting thread leaves whatever else it has to drive alone: about what a message
/// of the MPI beneath may be late when its receiver sits in one of our operations.
const IDLE_INTERVAL_MAX: Duration = Duration::from_millis(2);

/// The processes of one host that share one communicator, as one of them sees it.
///
/// All ranks perform the same operations in the same order, one at a time; the caller queues. An
/// operation is either [`run`](Self::run) at once, or [`start`](Self::start)ed and
/// [`poll`](Self::poll)ed until it is done. Ranks may differ in which of the two they use.
pub struct HostGroup {
    pub(super) rings: Rings,
    pub(super) watches: Vec<Watch>,
    pub(super) running: Option<Job>,
    pub(super) lost: Option<Lost>,
    pub(super) looked_at: Option<Timespec>,
    /// What else the process has to drive while it waits; nothing by default.
    idle: Box<dyn FnMut() -> Result<(), u32> + Send>,
}

// SAFETY: the pointers of a running operation are used only inside calls, and `start` obliges the
// caller to keep them usable from whichever thread polls.
unsafe impl Send for HostGroup {}

impl HostGroup {
    pub(super) fn new(
        segment: Segment,
        local_rank: u32,
        policy: Policy,
        watches: Vec<Watch>,
        reach: Reach,
    ) -> Self {
        let rings = Rings::new(segment, local_rank, policy, reach);
        Self {
            rings,
            watches,
            running: None,
            lost: None,
            looked_at: None,
            idle: Box::new(|| Ok(())),
        }
    }

    /// This process's place in the group.
    #[must_use]
    pub fn local_rank(&self) -> u32 {
        self.rings.local_rank
    }

    /// The number of processes in the group.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.rings.ranks
    }

    /// How this group waits; for a [`Waiter`] of the caller's own.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.rings.policy
    }

    /// Whether long vectors have been found to go directly from process to process.
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.rings.reach.verdict == super::reach::Verdict::Granted
    }

    /// Has `idle` called now and then while [`run`](Self::run) or [`complete`](Self::complete)
    /// waits long, from the waiting thread. Not while the caller polls: it can call it itself.
    /// Where it answers with a code, the group ends as by [`fail`](Self::fail).
    pub fn set_idle(&mut self, idle: impl FnMut() -> Result<(), u32> + Send + 'static) {
        self.idle = Box::new(idle);
    }

    /// Performs one operation and returns when this rank's part of it is done.
    ///
    /// # Errors
    /// A rank was lost. The target is then undefined.
    ///
    /// # Panics
    /// If another operation is in progress, or a rank in `operation` is not one of the group.
    ///
    /// # Safety
    /// `operation.source` and `operation.target` are valid for the lengths that the action asks for,
    /// and are in place as it says or do not overlap; so are the blocks of a reduce-scatter.
    #[inline]
    pub unsafe fn run(&mut self, operation: &Operation) -> Result<(), Lost> {
        // SAFETY: the caller's promise.
        if let Some(outcome) = unsafe { self.run_at_once(operation) } {
            return outcome;
        }
        // SAFETY: the caller's promise.
        unsafe { self.start(*operation)? };
        self.complete()
    }

    /// Begins an operation, to be driven by [`poll`](Self::poll).
    ///
    /// # Errors
    /// A rank was lost earlier.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// As [`run`](Self::run), until the operation is done, lost, or the group is dropped.
    pub unsafe fn start(&mut self, operation: Operation) -> Result<(), Lost> {
        assert!(self.running.is_none(), "one operation at a time runs in a host group");
        self.check_failure_word()?;
        let ranks = self.rings.ranks;
        assert!(
            match operation.action {
                Action::Reduce { to, .. } => to < ranks,
                Action::Broadcast { from } => from < ranks,
                Action::Transfer { from, to } => from < ranks && to < ranks && from != to,
                Action::Allreduce(_) | Action::Barrier => true,
                Action::ReduceScatter { .. } | Action::Allgather | Action::Scan { .. } => true,
            },
            "ranks of an operation are ranks of the group"
        );
        self.running = Job::new(operation, &self.rings);
        Ok(())
    }

    /// Drives the operation in progress as far as it goes without waiting. Ready if there is none.
    ///
    /// # Errors
    /// A rank was lost. The operation is over, its target undefined.
    pub fn poll(&mut self) -> Result<Poll<()>, Lost> {
        match self.advance() {
            Ok(()) => self.lost.map_or(Ok(Poll::Ready(())), Err),
            Err(awaited) => {
                self.check_failure_word()?;
                if self.is_checkup_due() {
                    self.look_after(awaited)?;
                }
                Ok(Poll::Pending)
            }
        }
    }

    /// Waits for the operation in progress.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn complete(&mut self) -> Result<(), Lost> {
        while let Err(awaited) = self.advance() {
            self.wait_for(awaited)?;
        }
        self.lost.map_or(Ok(()), Err)
    }

    /// Lets a little time pass in the way `waiter` says, or until the operation in progress can go
    /// on. For callers that drive something else besides, between two calls of `poll`.
    pub fn pause(&mut self, waiter: &mut Waiter) {
        if let Err(awaited) = self.advance() {
            waiter.pause(|time| self.rings.sleep(awaited, time));
        }
    }

    /// Ends the group: every rank that waits, now or later, gets [`Lost`] with this rank and `code`.
    pub fn fail(&mut self, code: u32) {
        let lost = Lost { local_rank: self.rings.local_rank, cause: LostCause::Reported(code) };
        self.report(lost);
        self.abandon();
    }

    /// Drives the operation until it is done or something must be awaited.
    fn advance(&mut self) -> Result<(), Awaited> {
        if let Some(running) = &mut self.running {
            running.advance(&mut self.rings)?;
            self.running = None;
            if let Some(lost) = self.rings.reach.failure.take() {
                self.report(lost);
                self.outlast_writers();
                // It is kept, and found by whoever asks how the operation ended.
                let _ = self.check_failure_word();
            }
        }
        Ok(())
    }

    /// Waits until `awaited` has come about.
    #[inline(never)]
    pub(super) fn wait_for(&mut self, awaited: Awaited) -> Result<(), Lost> {
        if self.rings.policy == Policy::Spin && self.rings.is_met_soon(awaited, EAGER_LOOKS) {
            return Ok(());
        }
        let mut waiter = Waiter::new(self.rings.policy);
        while !self.rings.is_met(awaited) {
            let checkup =
                waiter.pause(|time| self.rings.sleep(awaited, time.min(IDLE_INTERVAL_MAX)));
            match checkup {
                Checkup::None => continue,
                Checkup::Cheap => self.check_failure_word()?,
                Checkup::Full => self.look_after(awaited)?,
            }
            if let Err(code) = (self.idle)() {
                self.fail(code);
                self.check_failure_word()?;
            }
        }
        Ok(())
    }
}

impl Drop for HostGroup {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.report(Lost { local_rank: self.rings.local_rank, cause: LostCause::Left });
            self.abandon();
        }
        let control = self.rings.segment.control(self.rings.local_rank);
        // Release: pairs with the Acquire in `look_after`: what was published before is seen.
        control.departed.store(1, Ordering::Release);
    }
}
