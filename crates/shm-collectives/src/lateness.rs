//! Which rank is late, of a wait that lasts: the one that is waited for and does not itself wait.
//!
//! Owns when a wait counts as long, and who tells of it. Looks only when a wait has lasted so long that peers are
//! checked anyway, so an operation costs nothing for it.

use std::time::Duration;

use rustix::time::{ClockId, Timespec};

use super::ring::{Awaited, Rings};
use super::sync::Ordering;

/// A rank that says that it waits does so again sooner than this.
const SAID_AGAIN_WITHIN_MS: u64 = 1_000;

/// A rank that others have waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// Which.
    pub local_rank: u32,
    /// For how long.
    pub waited: Duration,
}

/// What one rank knows of its present wait.
#[derive(Default)]
pub(super) struct Lateness {
    watch: Option<Watch>,
    /// What is awaited, and since when, in milliseconds of the clock.
    wait: Option<(Awaited, u64)>,
    is_told: bool,
}

struct Watch {
    after: Duration,
    tell: Box<dyn FnMut(Late) + Send>,
}

impl Lateness {
    pub(super) fn watch(&mut self, after: Duration, tell: impl FnMut(Late) + Send + 'static) {
        self.watch = Some(Watch { after, tell: Box::new(tell) });
    }

    /// Another check in a wait for `awaited`, whose process lives.
    pub(super) fn note(&mut self, rings: &Rings, awaited: Awaited) {
        let Some(watch) = &mut self.watch else { return };
        let now = now_ms();
        let since = match self.wait {
            Some((before, since)) if before == awaited => since,
            _ => {
                self.wait = Some((awaited, now));
                self.is_told = false;
                return;
            }
        };
        say_waiting(rings, now);
        let waited = Duration::from_millis(now - since);
        if self.is_told || waited < watch.after || is_waiting(rings, awaited.peer, now) {
            return;
        }
        self.is_told = true;
        if is_first_to_tell(rings, awaited) {
            (watch.tell)(Late { local_rank: awaited.peer, waited });
        }
    }

    /// This rank waits for something other than the group's operations, so nobody should call it late.
    pub(super) fn note_other_wait(&self, rings: &Rings) {
        if self.watch.is_some() {
            say_waiting(rings, now_ms());
        }
    }
}

fn say_waiting(rings: &Rings, now_ms: u64) {
    // Relaxed, here and below: a hint for people, which nothing depends on.
    rings.segment.control(rings.local_rank).waited_at_ms.store(now_ms, Ordering::Relaxed);
}

fn is_waiting(rings: &Rings, peer: u32, now_ms: u64) -> bool {
    let said = rings.segment.control(peer).waited_at_ms.load(Ordering::Relaxed);
    now_ms.saturating_sub(said) < SAID_AGAIN_WITHIN_MS
}

/// Several ranks may wait for one: the first tells for all.
fn is_first_to_tell(rings: &Rings, awaited: Awaited) -> bool {
    const STEP_BITS: u32 = 40;
    let Awaited { peer, ring, step, .. } = awaited;
    let step = step & ((1 << STEP_BITS) - 1);
    let word = u64::from(peer + 1) << 48 | (ring as u64) << STEP_BITS | step;
    let told = &rings.segment.head().late.0;
    told.swap(word, Ordering::Relaxed) != word
}

/// The clock that all processes of a machine share; exact to a few milliseconds, for a few nanoseconds.
fn now_ms() -> u64 {
    let Timespec { tv_sec, tv_nsec } = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    tv_sec as u64 * 1_000 + tv_nsec as u64 / 1_000_000
}
