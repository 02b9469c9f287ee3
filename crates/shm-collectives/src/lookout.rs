//! What a rank looks at besides its own operation: the failure word, and whether its peers live.

use std::time::Duration;

use rustix::time::{ClockId, Timespec};

use super::failure::{Lost, LostCause};
use super::group::HostGroup;
use super::job::Job;
use super::ring::Awaited;
use super::sync::{self, Ordering, fence};
use super::waiting::CHECKUP_INTERVAL;

/// Between two looks whether a peer still writes to this rank's memory, after a failure.
const WRITERS_INTERVAL: Duration = Duration::from_micros(50);

impl HostGroup {
    /// Looks whether every process of the group is alive, now and then, for a caller that waits
    /// for something else than an operation of the group.
    ///
    /// # Errors
    /// A rank was lost.
    pub fn check_peers(&mut self) -> Result<(), Lost> {
        self.check_failure_word()?;
        if !self.is_checkup_due() {
            return Ok(());
        }
        for local_rank in (0..self.rings.ranks).filter(|rank| *rank != self.rings.local_rank) {
            // Acquire: pairs with the Release in `drop` of the peer.
            let departed =
                self.rings.segment.control(local_rank).departed.load(Ordering::Acquire) != 0;
            if !departed && self.watches[local_rank as usize].has_ended() {
                self.report(Lost { local_rank, cause: LostCause::Died });
                return self.check_failure_word();
            }
        }
        Ok(())
    }

    /// Whether a caller that polls should look after its peers again.
    pub(super) fn is_checkup_due(&mut self) -> bool {
        // The coarse clock costs a few nanoseconds and is exact to a few milliseconds.
        let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
        let since = |then: Timespec| {
            let seconds = now.tv_sec - then.tv_sec;
            Duration::from_nanos((seconds * 1_000_000_000 + now.tv_nsec - then.tv_nsec) as u64)
        };
        let due = self.looked_at.is_some_and(|then| since(then) >= CHECKUP_INTERVAL);
        if due || self.looked_at.is_none() {
            self.looked_at = Some(now);
        }
        due
    }

    #[inline]
    pub(super) fn check_failure_word(&mut self) -> Result<(), Lost> {
        if self.lost.is_none() {
            // Acquire: pairs with the Release in `report` of the rank that failed.
            let word = self.rings.segment.head().failure.0.load(Ordering::Acquire);
            self.lost = Lost::from_word(word);
        }
        match self.lost {
            None => Ok(()),
            Some(lost) => {
                self.abandon();
                Err(lost)
            }
        }
    }

    /// Looks at the failure word, and at the peer that is waited for.
    #[cold]
    pub(super) fn look_after(&mut self, awaited: Awaited) -> Result<(), Lost> {
        self.check_failure_word()?;
        let local_rank = awaited.peer;
        // Acquire: pairs with the Release in `drop` of the peer, after its last publication.
        let departed = self.rings.segment.control(local_rank).departed.load(Ordering::Acquire) != 0;
        let cause = if departed {
            LostCause::Left
        } else if self.watches[local_rank as usize].has_ended() {
            LostCause::Died
        } else {
            return Ok(());
        };
        // It may have done its part before it went.
        if self.rings.is_met(awaited) {
            return Ok(());
        }
        self.report(Lost { local_rank, cause });
        self.check_failure_word()
    }

    /// Drops the operation in progress, if any, after a failure. Its buffers are the caller's again.
    pub(super) fn abandon(&mut self) {
        if let Some(Job::Direct(_)) = self.running.take() {
            self.outlast_writers();
        }
    }

    /// Waits until no peer that lives writes to this rank's memory any more. Called when the failure
    /// word is set, so that none begins to; what one is at lasts as long as its share takes.
    #[cold]
    pub(super) fn outlast_writers(&self) {
        // SeqCst: pairs with the fence in `Direct::work_unless_failed`.
        fence(Ordering::SeqCst);
        for peer in self.rings.peers() {
            let writing = &self.rings.segment.control(peer).writing;
            // Acquire: pairs with the Release there.
            while writing.load(Ordering::Acquire) != 0 && !self.watches[peer as usize].has_ended() {
                sync::nap(WRITERS_INTERVAL);
            }
        }
    }

    /// Tells all ranks, unless another failure was told before.
    pub(super) fn report(&self, lost: Lost) {
        let word = &self.rings.segment.head().failure.0;
        // Release: pairs with the Acquire in `check_failure_word`. The first report stands, so that
        // all ranks name the same culprit.
        let _ = word.compare_exchange(0, lost.to_word(), Ordering::Release, Ordering::Relaxed);
        self.rings.wake_everyone();
    }
}
