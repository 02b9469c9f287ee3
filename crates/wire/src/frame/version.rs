//! Versions of the frame layout, and what two sides agree on.
//!
//! A side speaks all versions between two. The manager hears them from aggregators and jobs, and grants each group the
//! newest version that all of its aggregators and members speak; every frame of the group has it. So aggregators are
//! upgraded one at a time while jobs run: a build speaks its own version and the one before.

use core::fmt;

/// The version of a frame's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "control", derive(serde::Serialize, serde::Deserialize))]
pub struct Version(pub u8);

/// All versions between two, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "control", derive(serde::Serialize, serde::Deserialize))]
pub struct Versions {
    /// The oldest of them.
    pub oldest: Version,
    /// The newest of them.
    pub newest: Version,
}

/// What is read. Tests of upgrades read the next version, too, laid out as the newest.
const READ: Versions = Versions {
    newest: Version(Versions::SPOKEN.newest.0 + cfg!(feature = "next-version") as u8),
    ..Versions::SPOKEN
};

impl Version {
    /// The version that builds speak which say nothing of versions to the manager, or hear nothing from it.
    pub const UNSAID: Self = Self(2);

    /// The version that a frame has; none if this build does not read it.
    pub(super) fn read(number: u8) -> Option<Self> {
        Some(Self(number)).filter(|version| READ.contains(*version))
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::UNSAID
    }
}

impl Versions {
    /// The versions that this build speaks. With a new layout the newest goes up by one, and the oldest becomes
    /// the one before it.
    pub const SPOKEN: Self = Self { oldest: Version(2), newest: Version(2) };

    /// Whether the version is one of them.
    #[must_use]
    pub const fn contains(self, version: Version) -> bool {
        self.oldest.0 <= version.0 && version.0 <= self.newest.0
    }

    /// Those that `other` speaks too; none if there are none.
    #[must_use]
    pub fn common(self, other: Self) -> Option<Self> {
        let oldest = self.oldest.max(other.oldest);
        let newest = self.newest.min(other.newest);
        (oldest <= newest).then_some(Self { oldest, newest })
    }
}

/// Those of builds that do not say which they speak.
impl Default for Versions {
    fn default() -> Self {
        Self { oldest: Version::UNSAID, newest: Version::UNSAID }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest { newest.fmt(f) } else { write!(f, "{oldest} to {newest}") }
    }
}
