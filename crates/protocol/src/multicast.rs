//! Whether results sent to the group's multicast address arrive here.
//!
//! Nothing is probed beforehand: the first results are the probes. A receiver that gets one
//! subscribes at its parent, which may then leave out the reliable copies. One that gets none never
//! subscribes and gets every copy. A subscribed receiver that has to repeat several requests in a
//! row withdraws its subscription.

use core::mem::replace;

use tributary_wire::Capability;
use tributary_wire::frame::{EVERYONE, Edge};

use crate::{Carrier, Reachability};

/// After so many results in a row that came only after a repeated request, multicast counts as not
/// arriving.
const MISSES_MAX: u8 = 3;

/// One receiver of a group's multicast.
#[derive(Debug)]
pub(crate) struct MulticastReceiver {
    capability: Capability,
    is_subscribed: bool,
    misses: u8,
    /// Results that came first by multicast.
    results: u64,
}

impl MulticastReceiver {
    pub(crate) fn new(capability: Capability) -> Self {
        Self { capability, is_subscribed: false, misses: 0, results: 0 }
    }

    pub(crate) fn results(&self) -> u64 {
        self.results
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.is_subscribed
    }

    /// The edge of what is multicast to the group that has another edge.
    pub(crate) fn edge(&self, of_group: Edge) -> Edge {
        Edge { child: EVERYONE, capability: self.capability, ..of_group }
    }

    /// A result has completed a segment here. Returns whether multicast has begun or ceased to
    /// arrive.
    pub(crate) fn on_result(&mut self, carrier: Carrier, attempt: u8) -> Option<Reachability> {
        match carrier {
            Carrier::Multicast => {
                self.misses = 0;
                self.results += 1;
                let is_first = !replace(&mut self.is_subscribed, true);
                is_first.then_some(Reachability::Reachable)
            }
            Carrier::Datagram if self.is_subscribed && attempt > 0 => {
                self.misses += 1;
                if self.misses < MISSES_MAX {
                    return None;
                }
                (self.is_subscribed, self.misses) = (false, 0);
                Some(Reachability::Unreachable)
            }
            Carrier::Datagram | Carrier::Link => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_is_told_once_and_withdrawn_after_misses_in_a_row() {
        let mut receiver = MulticastReceiver::new(Capability::default());
        for _ in 0..10 {
            assert_eq!(receiver.on_result(Carrier::Datagram, 1), None, "it has never received any");
        }
        assert_eq!(receiver.on_result(Carrier::Multicast, 0), Some(Reachability::Reachable));
        assert_eq!(receiver.on_result(Carrier::Multicast, 0), None);
        for attempt in [1, 2] {
            assert_eq!(receiver.on_result(Carrier::Datagram, attempt), None);
        }
        assert_eq!(receiver.on_result(Carrier::Multicast, 0), None);
        assert_eq!(receiver.on_result(Carrier::Datagram, 0), None, "the copy was faster");
        for attempt in [1, 1] {
            assert_eq!(receiver.on_result(Carrier::Datagram, attempt), None);
        }
        assert_eq!(receiver.on_result(Carrier::Datagram, 1), Some(Reachability::Unreachable));
        assert_eq!(receiver.on_result(Carrier::Multicast, 0), Some(Reachability::Reachable));
    }
}
