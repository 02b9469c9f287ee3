//! Time as the machines see it.

/// A point on the driver's monotonic clock, in nanoseconds since an arbitrary start.
///
/// Drivers pass it in. If it goes back, timers are late by as much, and nothing else happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The point `ns` later, saturating.
    #[must_use]
    pub const fn after_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this point; zero if this is not later.
    #[must_use]
    pub fn since_ns(self, earlier: Self) -> u64 {
        #[cfg(feature = "planted-bugs")]
        assert!(
            self >= earlier || !crate::planted::is_planted(crate::planted::Bug::TimeOnlyForward),
            "time never goes back"
        );
        self.0.saturating_sub(earlier.0)
    }
}
