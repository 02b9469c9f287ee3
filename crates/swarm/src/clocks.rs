//! The clocks of machines: each starts elsewhere, runs a little fast or slow, and may jump.
//!
//! Virtual time is that of the world. A machine's drivers read its own clock, and pass what it says
//! to the protocol. They sleep for as long as their clock says; a jump does not wake them.

use tributary_protocol::Time;

/// How a machine's clock differs from virtual time before it jumps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockPlan {
    /// What it shows at the start.
    pub(super) starts_at: u64,
    /// How much faster than virtual time it runs, in parts of a million.
    pub(super) fast_ppm: u32,
}

/// A machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    plan: ClockPlan,
    /// How far it has jumped.
    jumped_ns: i64,
}

impl Clock {
    pub(super) fn new(plan: ClockPlan) -> Self {
        Self { plan, jumped_ns: 0 }
    }

    /// What it shows. It never shows less than zero.
    pub(super) fn at(&self, now: u64) -> Time {
        let gained_ns = (u128::from(now) * u128::from(self.plan.fast_ppm) / 1_000_000) as u64;
        let shown = self.plan.starts_at.saturating_add(now).saturating_add(gained_ns);
        Time(shown.saturating_add_signed(self.jumped_ns))
    }

    /// When a driver wakes that goes to sleep now until its clock shows `due`. A clock that runs
    /// fast wakes it late, never early.
    pub(super) fn wakes_at(&self, now: u64, due: Time) -> u64 {
        now.saturating_add(due.since_ns(self.at(now)))
    }

    pub(super) fn jump(&mut self, by_ns: i64) {
        self.jumped_ns = self.jumped_ns.saturating_add(by_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_gains_and_jumps_and_its_sleeper_is_never_early() {
        let mut clock = Clock::new(ClockPlan { starts_at: 1_000, fast_ppm: 500 });
        assert_eq!(clock.at(0), Time(1_000));
        assert_eq!(clock.at(2_000_000), Time(2_002_000));
        let wakes_at = clock.wakes_at(0, Time(50_000));
        assert!(clock.at(wakes_at) >= Time(50_000));
        clock.jump(-1_500_000);
        assert_eq!(clock.at(2_000_000), Time(502_000));
        clock.jump(-1_500_000);
        assert_eq!(clock.at(2_000_000), Time(0), "there is no time before the start");
        assert_eq!(clock.wakes_at(7, Time(0)), 7, "what is due is due now");
    }
}
