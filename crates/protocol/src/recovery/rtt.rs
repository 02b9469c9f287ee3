//! Round-trip time and retransmission timeout after RFC 6298, in nanoseconds.

/// Timeout before the first measurement.
const INITIAL_NS: u64 = 10_000_000;

/// The shortest timeout. Round trips take tens of microseconds, but the peer may first have to be
/// scheduled on a core. With a shorter timeout most repeats would be unnecessary.
const TIMEOUT_NS_MIN: u64 = 200_000;

/// The longest timeout. It bounds what a single loss costs after measurements on a busy machine.
const TIMEOUT_NS_MAX: u64 = 50_000_000;

/// Smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed_ns: Option<u64>,
    variation_ns: u64,
}

impl RoundTrip {
    /// Adds one measurement (RFC 6298, 2.2 and 2.3).
    pub(super) fn sample(&mut self, ns: u64) {
        let Some(smoothed) = self.smoothed_ns else {
            self.smoothed_ns = Some(ns);
            self.variation_ns = ns / 2;
            return;
        };
        self.variation_ns = (3 * self.variation_ns + smoothed.abs_diff(ns)) / 4;
        self.smoothed_ns = Some((7 * smoothed + ns) / 8);
    }

    /// Adds the time that a result took: a round trip and the wait for the slowest sibling. A
    /// result that took more than twice the usual time waited for a sibling, often for one that
    /// lost a datagram. Only twice the usual time is counted then: otherwise the sibling's timeout
    /// would lengthen this one, and so on up to the bound.
    pub(super) fn sample_result(&mut self, ns: u64) {
        let believed_ns = self.smoothed_ns.map_or(ns, |smoothed| ns.min(2 * smoothed));
        self.sample(believed_ns);
    }

    /// How long to wait for an answer (RFC 6298, 2.1 and 2.3, with this network's own bounds).
    pub(super) fn timeout_ns(&self) -> u64 {
        let Some(smoothed) = self.smoothed_ns else { return INITIAL_NS };
        (smoothed + 4 * self.variation_ns).clamp(TIMEOUT_NS_MIN, TIMEOUT_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_what_is_measured() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.timeout_ns(), INITIAL_NS);
        trip.sample(1_000_000);
        assert_eq!(trip.timeout_ns(), 3_000_000, "RFC 6298, 2.2: R + 4 * R / 2");
        for _ in 0..100 {
            trip.sample(1_000_000);
        }
        assert_eq!(trip.timeout_ns(), 1_000_000, "no variation is left");
        trip.sample(2_000_000);
        assert_eq!(trip.timeout_ns(), 1_125_000 + 4 * 250_000);
        for _ in 0..100 {
            trip.sample(1_000);
        }
        assert_eq!(trip.timeout_ns(), TIMEOUT_NS_MIN);
        for _ in 0..100 {
            trip.sample(1_000_000_000);
        }
        assert_eq!(trip.timeout_ns(), TIMEOUT_NS_MAX);
    }
    /// At 1 % loss about one operation in four waits for a sibling's repeat. If that time were
    /// counted in full, each repeat would delay the next one.
    #[test]
    fn siblings_repeats_do_not_feed_on_themselves() {
        let mut trip = RoundTrip::default();
        trip.sample(50_000);
        for operation in 0..10_000 {
            let repeat_ns = if operation % 4 == 0 { trip.timeout_ns() } else { 0 };
            trip.sample_result(50_000 + repeat_ns);
        }
        assert!(trip.timeout_ns() < 2 * TIMEOUT_NS_MIN, "{}", trip.timeout_ns());
    }

    #[test]
    fn a_network_that_has_become_slow_is_believed() {
        let mut trip = RoundTrip::default();
        trip.sample(50_000);
        for _ in 0..100 {
            trip.sample_result(5_000_000);
        }
        assert!(trip.timeout_ns() >= 5_000_000, "{}", trip.timeout_ns());
    }
}
