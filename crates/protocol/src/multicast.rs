//! Whether results sent to the group's multicast address arrive here.
//!
//! There is no separate probing: the first results are the probes. Whoever hears one tells its
//! parent, which may then spare the reliable copies; whoever hears none never says so and gets
//! every copy. Whoever has ceased to hear, because it had to ask for several results in a row,
//! takes its word back.

use core::mem::replace;

use tributary_wire::Capability;
use tributary_wire::frame::{EVERYONE, Edge};
use tributary_wire::{Epoch, GroupId};

use crate::{Carrier, Reach};

/// Results in a row that had to be asked for, after which multicast counts as not arriving.
const MISSES_MAX: u8 = 3;

/// One receiver of a group's multicast.
#[derive(Debug)]
pub(crate) struct Ear {
    capability: Capability,
    hears: bool,
    misses: u8,
    /// Results that came first by multicast.
    results: u64,
}

impl Ear {
    pub(crate) fn new(capability: Capability) -> Self {
        Self { capability, hears: false, misses: 0, results: 0 }
    }

    pub(crate) fn results(&self) -> u64 {
        self.results
    }

    pub(crate) fn hears(&self) -> bool {
        self.hears
    }

    /// Whether a frame is the group's own.
    pub(crate) fn accepts(&self, group: GroupId, epoch: Epoch, edge: &Edge) -> bool {
        let ours = Edge { group, epoch, child: EVERYONE, capability: self.capability };
        *edge == ours
    }

    /// A result has completed a segment here. What that decides, if it decides anything.
    pub(crate) fn on_result(&mut self, carrier: Carrier, attempt: u8) -> Option<Reach> {
        match carrier {
            Carrier::Multicast => {
                self.misses = 0;
                self.results += 1;
                let is_first = !replace(&mut self.hears, true);
                is_first.then_some(Reach::Open)
            }
            Carrier::Datagram if self.hears && attempt > 0 => {
                self.misses += 1;
                if self.misses < MISSES_MAX {
                    return None;
                }
                (self.hears, self.misses) = (false, 0);
                Some(Reach::Silent)
            }
            Carrier::Datagram | Carrier::Link => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hearing_is_told_once_and_taken_back_after_misses_in_a_row() {
        let mut ear = Ear::new(Capability::default());
        for _ in 0..10 {
            assert_eq!(ear.on_result(Carrier::Datagram, 1), None, "it has never heard any");
        }
        assert_eq!(ear.on_result(Carrier::Multicast, 0), Some(Reach::Open));
        assert_eq!(ear.on_result(Carrier::Multicast, 0), None);
        for attempt in [1, 2] {
            assert_eq!(ear.on_result(Carrier::Datagram, attempt), None);
        }
        assert_eq!(ear.on_result(Carrier::Multicast, 0), None);
        assert_eq!(ear.on_result(Carrier::Datagram, 0), None, "the copy was faster");
        for attempt in [1, 1] {
            assert_eq!(ear.on_result(Carrier::Datagram, attempt), None);
        }
        assert_eq!(ear.on_result(Carrier::Datagram, 1), Some(Reach::Silent));
        assert_eq!(ear.on_result(Carrier::Multicast, 0), Some(Reach::Open));
    }
}
