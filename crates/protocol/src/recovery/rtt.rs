//! Round-trip time and the timeout that follows from it, after RFC 6298, in nanoseconds.

/// Before anything was measured.
const INITIAL_NS: u64 = 10_000_000;

/// The least timeout. Round trips here take tens of microseconds, but whoever answers may first
/// have to be given a core; below this, repeats are mostly for nothing.
const TIMEOUT_NS_MIN: u64 = 200_000;

/// The most. It bounds what a single loss costs after measurements on a crowded machine.
const TIMEOUT_NS_MAX: u64 = 50_000_000;

/// Smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed_ns: Option<u64>,
    variation_ns: u64,
}

impl RoundTrip {
    /// Takes one measurement in (RFC 6298, 2.2 and 2.3).
    pub(super) fn sample(&mut self, ns: u64) {
        let Some(smoothed) = self.smoothed_ns else {
            self.smoothed_ns = Some(ns);
            self.variation_ns = ns / 2;
            return;
        };
        self.variation_ns = (3 * self.variation_ns + smoothed.abs_diff(ns)) / 4;
        self.smoothed_ns = Some((7 * smoothed + ns) / 8);
    }

    /// How long to wait for an answer (RFC 6298, 2.1 and 2.3, with bounds of this network's own).
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
}
