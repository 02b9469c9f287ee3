//! How long a member waits for a contribution before it asks without evidence.
//!
//! Where a datagram is longer under way than that, every operation would ask for what is on its way. So the wait is at least twice
//! a round trip, which the driver knows from the links. What members answer tells less: one that began when the question was
//! under way answers like one whose datagram is slow.

/// By how much the wait may grow.
const LONGEST: u64 = 32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    least_ns: u64,
    ask_after_ns: u64,
}

impl Patience {
    pub(crate) fn new(least_ns: u64) -> Self {
        Self { least_ns, ask_after_ns: least_ns }
    }

    /// How long a contribution may be late.
    pub(crate) fn ask_after_ns(&self) -> u64 {
        self.ask_after_ns
    }

    /// Takes a round trip. Returns by how much the wait is longer now.
    pub(crate) fn set_round_trip(&mut self, round_trip_ns: u64) -> u64 {
        let longest_ns = self.least_ns.saturating_mul(LONGEST);
        let before_ns = self.ask_after_ns;
        self.ask_after_ns = round_trip_ns.saturating_mul(2).clamp(self.least_ns, longest_ns);
        self.ask_after_ns.saturating_sub(before_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_two_round_trips_within_bounds() {
        let mut patience = Patience::new(1000);
        for (round_trip_ns, expected, more) in [
            (100, 1000, 0),
            (700, 1400, 400),
            (2000, 4000, 2600),
            (600, 1200, 0),
            (u64::MAX, 32_000, 30_800),
        ] {
            assert_eq!(patience.set_round_trip(round_trip_ns), more);
            assert_eq!(patience.ask_after_ns(), expected);
        }
    }
}
