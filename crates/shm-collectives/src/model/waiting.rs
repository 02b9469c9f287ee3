//! Waits that hand the core over at once: how long to spin is no part of a protocol.

use std::cell::Cell;
use std::time::Duration;

pub(super) use crate::waiting::{PEER_CHECK_INTERVAL, PeerCheck, Policy};

/// One poll finds as much as many do, as long as nothing happens between.
pub(super) const EAGER_POLLS: u32 = 1;

thread_local! {
    static PEER_CHECK: Cell<PeerCheck> = const { Cell::new(PeerCheck::None) };
}

/// Sets which check every pause of this model asks for.
pub(super) fn check_each_time(check: PeerCheck) {
    PEER_CHECK.set(check);
}

pub struct Waiter {
    policy: Policy,
    is_first: bool,
}

impl Waiter {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, is_first: true }
    }

    pub(super) fn pause(&mut self, sleep: impl FnOnce(Duration)) -> PeerCheck {
        // Loom lets a thread that has yielded see nothing older than it saw before: a model with
        // full checks makes the first one without a yield.
        let checks_at_once =
            std::mem::take(&mut self.is_first) && PEER_CHECK.get() == PeerCheck::Full;
        match self.policy {
            Policy::Spin if checks_at_once => {}
            Policy::Spin => loom::thread::yield_now(),
            Policy::Sleep => sleep(PEER_CHECK_INTERVAL),
        }
        PEER_CHECK.get()
    }

    pub(super) fn pause_while(
        &mut self,
        _is_pending: impl FnMut() -> bool,
        sleep: impl FnOnce(Duration),
    ) -> PeerCheck {
        self.pause(sleep)
    }
}
