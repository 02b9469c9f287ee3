//! The liveness check: whether the group was reported as failed, and whether its processes live.
//!
//! Owns the failure word of the segment and what a rank knows of its peers' processes. It must not
//! know operations: the group drops the one in progress when a check fails.

use std::time::Duration;

use super::check_clock::CheckClock;
use super::disagreement;
use super::failure::{Lost, LostCause};
use super::lateness::{Late, Lateness};
use super::process::ProcessWatch;
use super::ring::{Awaited, Rings};
use super::sync::{self, Ordering, fence};

/// Time between two polls whether a peer still writes to this rank's memory, after a failure.
const WRITERS_INTERVAL: Duration = Duration::from_micros(50);

/// What one rank knows about the lives of its peers.
pub(super) struct Liveness {
    /// By local rank.
    watches: Vec<ProcessWatch>,
    /// The failure that this rank has seen; final.
    lost: Option<Lost>,
    checks: CheckClock,
    lateness: Lateness,
}

impl Liveness {
    pub(super) fn new(watches: Vec<ProcessWatch>) -> Self {
        Self { watches, lost: None, checks: CheckClock::default(), lateness: Lateness::default() }
    }

    /// Has `tell` called when a wait for a rank has lasted `after`.
    pub(super) fn watch_late(&mut self, after: Duration, tell: impl FnMut(Late) + Send + 'static) {
        self.lateness.watch(after, tell);
    }

    /// The failure that a check has found before; reads no shared memory.
    pub(super) fn check_known(&self) -> Result<(), Lost> {
        self.lost.map_or(Ok(()), Err)
    }

    /// Whether a caller that polls should check its peers again.
    pub(super) fn is_check_due(&mut self) -> bool {
        self.checks.is_due()
    }

    /// Whether any rank has reported a failure.
    #[inline]
    pub(super) fn check_failure_word(&mut self, rings: &Rings) -> Result<(), Lost> {
        if self.lost.is_none() {
            // Acquire: pairs with the Release in `report` of the rank that failed.
            let word = rings.segment.head().failure.0.load(Ordering::Acquire);
            self.lost = Lost::from_word(word);
        }
        self.check_known()
    }

    /// Whether all peers live that have not left the group.
    pub(super) fn check_all_peers(&mut self, rings: &Rings) -> Result<(), Lost> {
        self.lateness.note_other_wait(rings);
        for local_rank in rings.peers() {
            if !has_departed(rings, local_rank) && self.has_ended(local_rank) {
                report(rings, Lost::new(local_rank, LostCause::Died));
                return self.check_failure_word(rings);
            }
        }
        Ok(())
    }

    /// Whether the peer that is waited for can still do its part.
    #[cold]
    pub(super) fn check_awaited_peer(
        &mut self,
        rings: &Rings,
        awaited: Awaited,
    ) -> Result<(), Lost> {
        self.check_failure_word(rings)?;
        let local_rank = awaited.peer;
        disagreement::say_waiting(rings);
        let cause = if has_departed(rings, local_rank) {
            LostCause::Left
        } else if self.has_ended(local_rank) {
            LostCause::Died
        } else if let Some(call) = disagreement::find(rings, awaited) {
            let (with, own) = (rings.local_rank, rings.call().as_called());
            LostCause::Disagrees { with, called: call.as_called(), with_called: own }
        } else {
            self.lateness.note(rings, awaited);
            return Ok(());
        };
        // It may have done its part before it went.
        if rings.is_met(awaited) {
            return Ok(());
        }
        report(rings, Lost::new(local_rank, cause));
        self.check_failure_word(rings)
    }

    /// Waits until no peer that lives writes to this rank's memory any more. Called when the
    /// failure word is set, so that none begins to; a peer that writes goes on until its share is
    /// done.
    #[cold]
    pub(super) fn outlast_writers(&self, rings: &Rings) {
        // SeqCst: pairs with the fence in `Direct::work_unless_failed`.
        fence(Ordering::SeqCst);
        for peer in rings.peers() {
            let writing = &rings.segment.control(peer).writing;
            // Acquire: pairs with the Release there.
            while writing.load(Ordering::Acquire) != 0 && !self.has_ended(peer) {
                sync::nap(WRITERS_INTERVAL);
            }
        }
    }

    fn has_ended(&self, local_rank: u32) -> bool {
        self.watches[local_rank as usize].has_ended()
    }
}

/// Tells all ranks of a failure, unless another one was reported before.
pub(super) fn report(rings: &Rings, lost: Lost) {
    let word = &rings.segment.head().failure.0;
    // Release: pairs with the Acquire in `check_failure_word`. The first report stands, so that all
    // ranks name the same rank.
    let _ = word.compare_exchange(0, lost.to_word(), Ordering::Release, Ordering::Relaxed);
    rings.wake_everyone();
}

/// Whether `rank` has left the group.
fn has_departed(rings: &Rings, rank: u32) -> bool {
    // Acquire: pairs with the Release in `drop` of the peer, after its last publication.
    rings.segment.control(rank).departed.load(Ordering::Acquire) != 0
}
