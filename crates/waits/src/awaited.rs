//! What a rank looks at while it waits, so that no death escapes it.

/// The ranks or hosts that a rank waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitsFor {
    /// Ranks of its host.
    #[default]
    Host,
    /// Other hosts.
    InterHost,
    /// Either.
    Both,
}

impl WaitsFor {
    /// Whether it has to look, from time to time, whether the ranks of its host live. A wait for them does so itself.
    #[must_use]
    pub fn looks_at_host(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::HostOverlooked) {
            return false;
        }
        self != Self::Host
    }
}
