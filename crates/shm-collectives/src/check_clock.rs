//! When a caller that polls looks again whether others live.

use std::time::Duration;

use rustix::time::{ClockId, Timespec};

use super::waiting::PEER_CHECK_INTERVAL;

/// Says once in [`PEER_CHECK_INTERVAL`] that a check is due. Cheap enough to be asked in every poll.
#[derive(Default)]
pub struct CheckClock {
    checked_at: Option<Timespec>,
}

impl CheckClock {
    /// Whether a check is due; the next one then is after the interval.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        // The coarse clock costs a few nanoseconds and is exact to a few milliseconds.
        let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
        let since = |then: Timespec| {
            let seconds = now.tv_sec - then.tv_sec;
            Duration::from_nanos((seconds * 1_000_000_000 + now.tv_nsec - then.tv_nsec) as u64)
        };
        let due = self.checked_at.is_some_and(|then| since(then) >= PEER_CHECK_INTERVAL);
        if due || self.checked_at.is_none() {
            self.checked_at = Some(now);
        }
        due
    }
}
