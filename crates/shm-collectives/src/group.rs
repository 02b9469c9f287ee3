//! The group: its operation in progress, waits, and the end of the group.
//!
//! Blocking calls, which need no state for short operations, are in `fast_path`.

use std::task::Poll;
use std::time::Duration;

use super::call::{Call, CallKind};
use super::disagreement;
use super::failure::{Lost, LostCause};
use super::job::Job;
use super::lateness::Late;
use super::liveness::{self, Liveness};
use super::operation::{Action, Operation};
use super::peer_memory::PeerMemory;
use super::process::ProcessWatch;
use super::ring::{Awaited, AwaitedEvent, Rings};
use super::segment::Segment;
use super::sync::Ordering;
use super::waiting::{EAGER_POLLS, PeerCheck, Policy, Waiter};

/// Longest time between two calls of `idle` in a wait: as much as a message of the underlying MPI
/// may be late when its receiver waits in an operation of the group.
const IDLE_INTERVAL_MAX: Duration = Duration::from_millis(2);

/// One process's membership in a group of processes of one host.
///
/// All ranks perform the same operations in the same order, one at a time; a caller with several
/// queues them. An operation is either [`run`](Self::run) in one call, or [`start`](Self::start)ed
/// and then [`poll`](Self::poll)ed or [`complete`](Self::complete)d. Ranks may differ in which they
/// use.
///
/// Dropping the group leaves it: a peer that waits for this rank, then or later, gets [`Lost`] with
/// [`LostCause::Left`]. A peer for which this rank had done its part is not disturbed.
pub struct HostGroup {
    pub(super) rings: Rings,
    pub(super) running: Option<Job>,
    pub(super) liveness: Liveness,
    /// What else the process has to drive while it waits; nothing by default.
    idle: Box<dyn FnMut() -> Result<(), u32> + Send>,
}

// SAFETY: the pointers of the operation in progress are used only inside calls, and the contract of
// `start` keeps them valid for whichever thread polls.
unsafe impl Send for HostGroup {}

impl HostGroup {
    pub(super) fn new(
        segment: Segment,
        local_rank: u32,
        policy: Policy,
        watches: Vec<ProcessWatch>,
        peer_memory: PeerMemory,
    ) -> Self {
        let rings = Rings::new(segment, local_rank, policy, peer_memory);
        let liveness = Liveness::new(watches);
        Self { rings, running: None, liveness, idle: Box::new(|| Ok(())) }
    }

    /// This process's rank in the group, below [`ranks`](Self::ranks).
    #[inline]
    #[must_use]
    pub fn local_rank(&self) -> u32 {
        self.rings.local_rank
    }

    /// The number of processes in the group.
    #[inline]
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.rings.ranks
    }

    /// How this group waits; for a [`Waiter`] of the caller's own.
    #[inline]
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.rings.policy
    }

    /// Whether long vectors have been found to go directly from process to process.
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.rings.peer_memory.direct_access == super::peer_memory::DirectAccess::Granted
    }

    /// Sets what a waiting thread calls every few milliseconds while [`run`](Self::run) or
    /// [`complete`](Self::complete) waits; [`poll`](Self::poll) never calls it. If `idle` returns an
    /// error code, the group ends as by [`fail`](Self::fail).
    pub fn set_idle(&mut self, idle: impl FnMut() -> Result<(), u32> + Send + 'static) {
        self.idle = Box::new(idle);
    }

    /// Begins an operation, to be driven by [`poll`](Self::poll) or [`complete`](Self::complete).
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
                Action::Reduce { to, .. } | Action::Gather { to } => to < ranks,
                Action::Broadcast { from } | Action::Scatter { from, .. } => from < ranks,
                Action::Transfer { from, to } => from < ranks && to < ranks && from != to,
                Action::Allreduce(_)
                | Action::Barrier
                | Action::ReduceScatter { .. }
                | Action::Allgather
                | Action::Scan { .. } => true,
            },
            "ranks of an operation are ranks of the group"
        );
        let call = Call::of(&operation);
        self.running = Job::new(operation, &self.rings);
        // Some callers leave out operations that have nothing to do, so these are not compared.
        if self.running.is_some() {
            self.rings.begin(call);
        }
        Ok(())
    }

    /// Drives the operation in progress as far as it goes without waiting. Ready if there is none.
    ///
    /// # Errors
    /// A rank was lost. The operation is over, its target undefined.
    pub fn poll(&mut self) -> Result<Poll<()>, Lost> {
        match self.advance() {
            Ok(()) => self.liveness.check_known().map(Poll::Ready),
            Err(awaited) => {
                self.check_failure_word()?;
                if self.liveness.is_check_due() {
                    self.check_awaited_peer(awaited)?;
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
        self.liveness.check_known()
    }

    /// Pauses as `waiter` says, at most until the operation in progress can go on. For callers that
    /// drive something else besides, between two calls of [`poll`](Self::poll).
    pub fn pause(&mut self, waiter: &mut Waiter) {
        if let Err(awaited) = self.advance() {
            waiter.pause(|time| self.rings.sleep(awaited, time));
        }
    }

    /// Notes a number that all ranks of the group must have alike, before the next operation: the root of a collective whose
    /// part inside the host is the same for other roots. A rank that has another one is found by that operation.
    pub fn note(&mut self, number: u32) {
        self.rings.note(number);
    }

    /// Ends the group: every rank that waits, now or later, gets [`Lost`] with this rank and
    /// `code`.
    pub fn fail(&mut self, code: u32) {
        let lost = Lost::new(self.rings.local_rank, LostCause::Reported(code));
        liveness::report(&self.rings, lost);
        self.abandon();
    }

    /// Has `tell` called when others have waited for a rank's part for `after`: once for each wait, at one of the
    /// ranks that wait, of a rank that does not wait for another one itself.
    pub fn tell_late(&mut self, after: Duration, tell: impl FnMut(Late) + Send + 'static) {
        self.liveness.watch_late(after, tell);
    }

    /// Checks, once in [`PEER_CHECK_INTERVAL`](super::PEER_CHECK_INTERVAL), that every process of
    /// the group lives. For a caller that waits for something other than an operation of the group.
    ///
    /// # Errors
    /// A rank was lost.
    pub fn check_peers(&mut self) -> Result<(), Lost> {
        self.check_failure_word()?;
        if !self.liveness.is_check_due() {
            return Ok(());
        }
        let outcome = self.liveness.check_all_peers(&self.rings);
        self.abandon_if_lost(outcome)
    }

    /// Whether an operation may begin at once: none is in progress and no rank is known to be lost.
    /// A rank that only sends would not check the failure word else.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        // Acquire: pairs with the Release in `report` of the rank that failed.
        let failure = self.rings.segment.head().failure.0.load(Ordering::Acquire);
        failure == 0 && self.running.is_none()
    }

    #[inline]
    fn check_failure_word(&mut self) -> Result<(), Lost> {
        let outcome = self.liveness.check_failure_word(&self.rings);
        self.abandon_if_lost(outcome)
    }

    fn check_awaited_peer(&mut self, awaited: Awaited) -> Result<(), Lost> {
        if self.adopt_shorter_broadcast(awaited) {
            return Ok(());
        }
        let outcome = self.liveness.check_awaited_peer(&self.rings, awaited);
        self.abandon_if_lost(outcome)
    }

    /// Takes part in the root's broadcast instead of the one that this rank waits for, if the root's is shorter. Whether it
    /// is: then the call is another one.
    fn adopt_shorter_broadcast(&mut self, awaited: Awaited) -> bool {
        // The fast path has no operation in progress. Its broadcasts say in their call how long they are.
        let (from, expected, operation) = match &self.running {
            None if self.rings.call().as_called().kind == CallKind::Broadcast => {
                (awaited.peer, self.rings.broadcast_bytes(awaited.peer), None)
            }
            Some(Job::Staged(staged)) => match staged.as_awaited_broadcast() {
                Some(operation @ Operation { action: Action::Broadcast { from }, .. }) => {
                    (from, operation.len_bytes, Some(operation))
                }
                _ => return false,
            },
            _ => return false,
        };
        let shorter = disagreement::shorter_broadcast(&self.rings, awaited, from, expected);
        let Some(len_bytes) = shorter else { return false };
        self.rings.begin_instead(Call::new(CallKind::Broadcast, 0, len_bytes, from));
        if let Some(operation) = operation {
            self.running = Job::new(Operation { len_bytes, ..operation }, &self.rings);
        }
        true
    }

    #[inline]
    fn abandon_if_lost(&mut self, outcome: Result<(), Lost>) -> Result<(), Lost> {
        if outcome.is_err() {
            self.abandon();
        }
        outcome
    }

    /// Drops the operation in progress, if any, after a failure. Its buffers are the caller's
    /// again.
    fn abandon(&mut self) {
        if let Some(Job::Direct(_)) = self.running.take() {
            self.liveness.outlast_writers(&self.rings);
        }
    }

    /// Drives the operation until it is done or something must be awaited.
    pub(super) fn advance(&mut self) -> Result<(), Awaited> {
        if let Some(running) = &mut self.running {
            running.advance(&mut self.rings)?;
            self.running = None;
            if let Some(lost) = self.rings.peer_memory.failure.take() {
                liveness::report(&self.rings, lost);
                self.liveness.outlast_writers(&self.rings);
                // `Liveness` keeps it, for `poll` and `complete` to return.
                let _ = self.check_failure_word();
            }
        }
        Ok(())
    }

    /// Waits until `peer` has filled its slot of the step to come. Makes its [`Awaited`] itself: a caller on the fast path
    /// then has nothing of it in memory.
    #[inline(never)]
    pub(super) fn wait_for_slot(&mut self, ring: usize, peer: u32) -> Result<(), Lost> {
        let step = self.rings.step(ring);
        self.spin_or_wait(Awaited { peer, ring, step, event: AwaitedEvent::Filled })
    }

    /// Waits until `awaited` has come about.
    #[inline(never)]
    pub(super) fn wait_for(&mut self, awaited: Awaited) -> Result<(), Lost> {
        self.spin_or_wait(awaited)
    }

    #[inline]
    fn spin_or_wait(&mut self, awaited: Awaited) -> Result<(), Lost> {
        let is_met =
            self.rings.policy == Policy::Spin && self.rings.is_met_soon(awaited, EAGER_POLLS);
        if is_met { Ok(()) } else { self.wait_long(awaited) }
    }

    #[inline(never)]
    fn wait_long(&mut self, awaited: Awaited) -> Result<(), Lost> {
        let mut waiter = Waiter::new(self.rings.policy);
        let call = self.rings.call();
        while !self.rings.is_met(awaited) {
            let sleep = |time| self.rings.sleep(awaited, IDLE_INTERVAL_MAX.min(time));
            match waiter.pause_while(self.rings.is_pending(awaited), sleep) {
                PeerCheck::None => continue,
                PeerCheck::Cheap => self.check_failure_word()?,
                PeerCheck::Full => self.check_awaited_peer(awaited)?,
            }
            // Another call has taken this one's place if it was a broadcast, and is shorter at its root.
            if self.rings.call() != call {
                return Ok(());
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
            let lost = Lost::new(self.rings.local_rank, LostCause::Left);
            liveness::report(&self.rings, lost);
            self.abandon();
        }
        let control = self.rings.segment.control(self.rings.local_rank);
        // Release: pairs with the Acquire in `liveness::has_departed`: what was published before is
        // seen.
        control.departed.store(1, Ordering::Release);
    }
}
