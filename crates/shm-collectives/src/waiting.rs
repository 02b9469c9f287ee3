//! How a thread waits for another process: the policy, and the pacing of one wait.
//!
//! Owns the choice between spinning, yielding and sleeping, and when a wait has lasted long enough
//! to check whether the other side still lives. It must not know what is waited for: the caller
//! tests its own condition between two calls of [`Waiter::pause`] and supplies the sleep.

use std::time::{Duration, Instant};

/// How long one sleep, or one stretch of spinning, may last before the peers are checked.
pub const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Sleep in a wait whose end only the caller can poll for, such as a message of the underlying MPI, while the wait is short.
/// See [`NAP_SHARE`].
pub const NAP_MAX: Duration = Duration::from_micros(50);

/// A wait sleeps for this part of what it has slept, at least its first nap and at most [`LONG_NAP_MAX`]. So it lasts by a
/// sixty-fourth longer than it must, and ranks that wait for long leave cores idle. On Linux 6.18 that is what a rank needs
/// that has yielded much before, in the underlying MPI: each yield counts as a whole slice, and while 31 others polled every
/// 50 us on two cores, it was kept from them for minutes.
const NAP_SHARE: u32 = 64;
/// Longest nap of a long wait.
const LONG_NAP_MAX: Duration = Duration::from_millis(2);

/// Polls of a flag before a wait is paced: some ten microseconds.
pub(crate) const EAGER_POLLS: u32 = 256;

/// Polls of the condition without a `pause` between, at the start of a wait.
///
/// `pause` takes some 140 cycles on current Intel cores, which is as long as the cache line takes
/// to travel: an exchange between two waiting processes must not pay it.
const EAGER_ROUNDS: u32 = 256;
/// Rounds of `pause` between two readings of the clock while spinning.
const ROUNDS_PER_CLOCK: u32 = 512;
/// Rounds (about a millisecond of `pause`) after which a spinning thread also yields, so that
/// another program on the same core is not held up by a wait that is long anyhow.
const ROUNDS_BEFORE_YIELD: u32 = 16 * 1024;
/// Yields before the first sleep when cores are short. Each lets every runnable process of the core
/// go first, so this many suffice unless a partner computes or sleeps. There is no spinning before
/// the first: what is awaited most likely needs this very core, and a poll of a socket is a system
/// call (8 hosts of a lab on 2 cores, 8 bytes through the tree: 83 us with 32 spins, 48 without).
const CROWDED_YIELDS: u32 = 64;
/// Every so many rounds, a caller may poll what is not its condition.
const ROUNDS_PER_CHECK: u32 = 8;
/// Yields between two cheap checks: what a check drives may cost as much as the yield.
const YIELDS_PER_CHEAP_CHECK: u32 = 16;

/// How to wait, given the cores that the waiting processes were granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A core for every process: spin. Nobody ever sleeps, so nobody has to be woken.
    Spin,
    /// More processes than cores: yield at once, then sleep until woken.
    Sleep,
}

impl Policy {
    /// The policy for `processes` that share `cores`.
    #[must_use]
    pub fn for_crowd(processes: u32, cores: u32) -> Self {
        if processes <= cores { Self::Spin } else { Self::Sleep }
    }
}

/// What the caller of [`Waiter::pause`] should check besides its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCheck {
    /// Nothing: the wait is still short.
    None,
    /// Cheap signs of failure, such as a word in shared memory.
    Cheap,
    /// Everything, system calls included: [`PEER_CHECK_INTERVAL`] has passed since the last time.
    Full,
}

/// The pacing of one wait. Make a new one, or [`reset`](Self::reset) it, whenever the awaited
/// condition came true.
#[derive(Clone, Debug)]
pub struct Waiter {
    policy: Policy,
    rounds: u32,
    nap_max: Duration,
    /// How long it has slept, as far as it was not woken before.
    slept: Duration,
    checked_at: Option<Instant>,
}

impl Waiter {
    /// A wait that has not begun yet.
    #[inline]
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::with_naps(policy, PEER_CHECK_INTERVAL)
    }

    /// The same, with sleeps of at most `nap_max` as long as it is short: for a wait that only its caller can end.
    #[inline]
    #[must_use]
    pub fn with_naps(policy: Policy, nap_max: Duration) -> Self {
        Self { policy, rounds: 0, nap_max, slept: Duration::ZERO, checked_at: None }
    }

    /// Begins anew, after progress was made.
    #[inline]
    pub fn reset(&mut self) {
        self.rounds = 0;
        self.slept = Duration::ZERO;
        self.checked_at = None;
    }

    /// Whether the round that [`pause`](Self::pause) ended is one in which to read the clock, or to
    /// poll anything besides the condition: one round in eight, and every round that slept.
    #[inline]
    #[must_use]
    pub fn is_check_round(&self) -> bool {
        let has_slept = self.policy == Policy::Sleep && self.rounds > CROWDED_YIELDS;
        has_slept || self.rounds.is_multiple_of(ROUNDS_PER_CHECK)
    }

    /// Lets a little time pass, in the way that suits the policy and the length of the wait so far.
    ///
    /// `sleep` is called only under [`Policy::Sleep`]. It must return when the condition may have
    /// come true, and at the latest after the given time.
    #[inline]
    pub fn pause(&mut self, sleep: impl FnOnce(Duration)) -> PeerCheck {
        self.rounds = self.rounds.saturating_add(1);
        match self.policy {
            Policy::Spin if self.rounds <= EAGER_ROUNDS => PeerCheck::None,
            Policy::Spin => self.pause_spinning(),
            Policy::Sleep => self.pause_crowded(sleep),
        }
    }

    /// Whether the next [`pause`](Self::pause) would yield and do nothing else.
    #[inline]
    #[must_use]
    pub fn yields_next(&self) -> bool {
        self.policy == Policy::Sleep && self.rounds < CROWDED_YIELDS
    }

    /// Yields, and again as long as `is_pending` says that the condition has not come true, up to
    /// the next [check round](Self::is_check_round).
    ///
    /// Most rounds of a crowded wait yield and find the condition pending. Each comes back to a
    /// core whose caches others have used since, and costs by how much it touches.
    pub fn yield_while(&mut self, mut is_pending: impl FnMut() -> bool) {
        while self.yields_next() {
            self.rounds += 1;
            std::thread::yield_now();
            if self.rounds.is_multiple_of(ROUNDS_PER_CHECK) || !is_pending() {
                return;
            }
        }
    }

    /// Lets a little time pass as [`pause`](Self::pause) does, or more by [`yield_while`](Self::yield_while) while that
    /// yields.
    #[inline]
    pub fn pause_while(
        &mut self,
        is_pending: impl FnMut() -> bool,
        sleep: impl FnOnce(Duration),
    ) -> PeerCheck {
        if !self.yields_next() {
            return self.pause(sleep);
        }
        self.yield_while(is_pending);
        self.check_after_yields()
    }

    #[inline]
    fn check_after_yields(&self) -> PeerCheck {
        let is_due = self.rounds.is_multiple_of(YIELDS_PER_CHEAP_CHECK);
        if is_due { PeerCheck::Cheap } else { PeerCheck::None }
    }

    #[cold]
    fn pause_spinning(&mut self) -> PeerCheck {
        if self.rounds > ROUNDS_BEFORE_YIELD {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        if self.rounds.is_multiple_of(ROUNDS_PER_CLOCK) { self.check() } else { PeerCheck::None }
    }

    #[cold]
    fn pause_crowded(&mut self, sleep: impl FnOnce(Duration)) -> PeerCheck {
        if self.rounds <= CROWDED_YIELDS {
            std::thread::yield_now();
            self.check_after_yields()
        } else {
            let nap = (self.slept / NAP_SHARE).min(LONG_NAP_MAX).max(self.nap_max);
            self.slept = self.slept.saturating_add(nap);
            sleep(nap);
            self.check()
        }
    }

    fn check(&mut self) -> PeerCheck {
        let now = Instant::now();
        match self.checked_at {
            None => {
                self.checked_at = Some(now);
                PeerCheck::Cheap
            }
            Some(then) if now.duration_since(then) < PEER_CHECK_INTERVAL => PeerCheck::Cheap,
            Some(_) => {
                self.checked_at = Some(now);
                PeerCheck::Full
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_compares_processes_with_cores() {
        assert_eq!(Policy::for_crowd(2, 2), Policy::Spin);
        assert_eq!(Policy::for_crowd(3, 2), Policy::Sleep);
    }

    #[test]
    fn a_spinning_wait_never_sleeps_and_comes_to_a_full_check() {
        let mut waiter = Waiter::new(Policy::Spin);
        while waiter.pause(|_| panic!("a spinning wait slept")) != PeerCheck::Full {}
    }

    #[test]
    fn yielding_ends_when_something_has_come_and_in_check_rounds() {
        let mut waiter = Waiter::new(Policy::Sleep);
        let mut polls = 0;
        let mut is_pending_until = |last: u32| {
            polls += 1;
            polls < last
        };
        waiter.yield_while(|| is_pending_until(3));
        assert_eq!(waiter.rounds, 3);
        let mut checks = Vec::new();
        while waiter.yields_next() {
            checks.push(waiter.pause_while(|| true, |_| panic!("a wait that may yield slept")));
            assert!(waiter.is_check_round());
        }
        assert_eq!(waiter.rounds, CROWDED_YIELDS);
        assert_eq!(checks, [PeerCheck::None, PeerCheck::Cheap].repeat(4));
        let mut spinning = Waiter::new(Policy::Spin);
        spinning.yield_while(|| panic!("a spinning wait yielded"));
    }

    #[test]
    fn naps_grow_with_the_wait_and_begin_anew_with_it() {
        let mut waiter = Waiter::with_naps(Policy::Sleep, NAP_MAX);
        let mut naps = Vec::new();
        for _ in 0..CROWDED_YIELDS + 400 {
            waiter.pause(|nap| naps.push(nap));
        }
        assert_eq!((naps[0], naps.last()), (NAP_MAX, Some(&LONG_NAP_MAX)));
        let mut slept = Duration::ZERO;
        for nap in naps {
            assert!(nap <= NAP_MAX.max(slept / NAP_SHARE), "{nap:?} after {slept:?}");
            slept += nap;
        }
        waiter.reset();
        let mut first = None;
        while first.is_none() {
            waiter.pause(|nap| first = Some(nap));
        }
        assert_eq!(first, Some(NAP_MAX));
    }

    #[test]
    fn a_crowded_wait_sleeps_and_comes_to_a_full_check() {
        let mut waiter = Waiter::new(Policy::Sleep);
        let mut sleeps = 0;
        while waiter.pause(|time| {
            sleeps += 1;
            std::thread::sleep(time);
        }) != PeerCheck::Full
        {}
        assert!(sleeps >= 1);
    }
}
