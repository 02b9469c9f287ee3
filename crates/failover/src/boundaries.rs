//! When members that carry operations over direct links go back into a tree.
//!
//! Operations are numbered alike everywhere, so a *boundary* before one of them is a place in time that all agree
//! on. Time is in nanoseconds of a clock of the driver's; if it goes back, a boundary comes soon. Member 0 announces there whether it has a grant, and where the next boundary lies. Owns this order;
//! who asks for the grant and how a place is taken is the driver's.

/// How much time there is between two boundaries, about: each costs an exchange.
const INTERVAL_NS: u64 = 5_000_000;
/// Most operations between two boundaries.
const OPERATIONS_MAX: u32 = 1 << 10;

/// Aggregators keep the places of a group for 10 s; a grant as old as this is not worth trying.
pub const GRANT_AGE_MAX_NS: u64 = 8_000_000_000;

/// Pauses before the manager is asked again: the first, and the longest after doubling.
const RETRY_MIN_NS: u64 = 20_000_000;
const RETRY_MAX_NS: u64 = 2_000_000_000;

/// Since the loss of a tree: the operations, and the boundaries before some of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Boundaries {
    operations: u32,
    /// The operation before which the next boundary lies.
    due: u32,
    /// How many operations there were at the last one, and when that was.
    last: u32,
    since_ns: u64,
    /// Grants by which some member found no place, in a row.
    failed: u32,
}

/// What member 0 announces at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Length of its grant; 0 if it has none.
    pub grant_bytes: u32,
    /// The operation before which the next boundary lies.
    next: u32,
}

/// What follows an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAnnouncement {
    /// All members tell each other how far they are with their places.
    Places,
    /// Member 0 spreads its grant. Then all begin to take their places, and go on without them.
    Grant,
    /// It goes on without a tree.
    Nothing,
}

/// How far a member is with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// It has it.
    Taken,
    /// It has not yet.
    UnderWay,
    /// There is none for it.
    Failed,
}

impl Place {
    /// As bits that come together by "or" into what holds for all members.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Taken => 0,
            Self::UnderWay => 1,
            Self::Failed => 2,
        }
    }

    /// What all members' bits say: the worst of them.
    #[must_use]
    pub const fn of_all(bits: u8) -> Self {
        match bits {
            0 => Self::Taken,
            1 => Self::UnderWay,
            _ => Self::Failed,
        }
    }
}

impl Announcement {
    /// Its length: two numbers, little-endian.
    pub const BYTES: usize = 8;

    /// As bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        (u64::from(self.next) << 32 | u64::from(self.grant_bytes)).to_le_bytes()
    }

    /// From bytes.
    #[must_use]
    pub fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let both = u64::from_le_bytes(bytes);
        Self { grant_bytes: both as u32, next: (both >> 32) as u32 }
    }
}

impl Boundaries {
    /// From the loss of a tree on.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self { operations: 0, due: 1, last: 0, since_ns: now_ns, failed: 0 }
    }

    /// An operation is about to start: whether there is a boundary before it.
    pub fn on_operation(&mut self) -> bool {
        let is_due = self.operations == self.due;
        self.operations += 1;
        is_due
    }

    /// What member 0 announces, so that the next boundary comes in about an interval.
    #[must_use]
    pub fn announcement(&self, now_ns: u64, grant_bytes: u32) -> Announcement {
        let passed = u64::from(self.operations.saturating_sub(self.last).max(1));
        // A clock that has gone back does not tell how long operations take.
        let each_ns = now_ns.checked_sub(self.since_ns).map_or(INTERVAL_NS, |ns| ns / passed);
        let until = (INTERVAL_NS / each_ns.max(1)).clamp(1, u64::from(OPERATIONS_MAX)) as u32;
        Announcement { grant_bytes, next: self.operations + until - 1 }
    }

    /// What was announced. `is_entering` says whether a grant was spread whose places are being taken, which all
    /// members know alike.
    pub fn on_announced(
        &mut self,
        now_ns: u64,
        announcement: Announcement,
        is_entering: bool,
    ) -> AfterAnnouncement {
        #[cfg(feature = "planted-bugs")]
        if announcement.grant_bytes == 0
            && crate::planted::is_planted(crate::planted::Bug::BoundaryForgotten)
        {
            return AfterAnnouncement::Nothing;
        }
        self.due = announcement.next;
        (self.last, self.since_ns) = (self.operations, now_ns);
        match (is_entering, announcement.grant_bytes) {
            (true, _) => AfterAnnouncement::Places,
            (false, 0) => AfterAnnouncement::Nothing,
            (false, _) => AfterAnnouncement::Grant,
        }
    }

    /// A grant came to nothing, because a member found no place.
    pub fn on_grant_failed(&mut self) {
        self.failed += 1;
    }

    /// How long to wait before the manager is asked, after so many requests without success.
    #[must_use]
    pub fn pause_ns(&self, asked: u32) -> u64 {
        (RETRY_MIN_NS << self.failed.saturating_add(asked).min(16)).min(RETRY_MAX_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_come_about_every_interval_at_the_same_operations_everywhere() {
        let [mut first, mut other] = [Boundaries::new(0), Boundaries::new(70)];
        let (mut now, mut at) = (0, 0);
        let mut seen = 0;
        for operation in 0..400 {
            let is_due = first.on_operation();
            assert_eq!(other.on_operation(), is_due, "before operation {operation}");
            if is_due {
                seen += 1;
                let announcement = first.announcement(now, 0);
                assert_eq!(Announcement::decode(announcement.encode()), announcement);
                for it in [&mut first, &mut other] {
                    let after = it.on_announced(now, announcement, false);
                    assert_eq!(after, AfterAnnouncement::Nothing);
                }
                assert!(now - at <= 2 * INTERVAL_NS, "{operation}");
                at = now;
            }
            now += 500_000;
        }
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn a_boundary_comes_soon_after_a_clock_has_gone_back() {
        let mut boundaries = Boundaries::new(1_000_000_000);
        let mut is_due = || boundaries.on_operation();
        assert!(!is_due() && is_due());
        let announcement = boundaries.announcement(1_000, 0);
        boundaries.on_announced(1_000, announcement, false);
        assert!(boundaries.on_operation());
    }

    #[test]
    fn the_worst_place_counts_and_failures_make_pauses_longer() {
        let all = |places: &[Place]| Place::of_all(places.iter().fold(0, |so, it| so | it.bits()));
        assert_eq!(all(&[Place::Taken, Place::Taken]), Place::Taken);
        assert_eq!(all(&[Place::Taken, Place::UnderWay]), Place::UnderWay);
        assert_eq!(all(&[Place::UnderWay, Place::Failed]), Place::Failed);
        let mut boundaries = Boundaries::new(0);
        assert_eq!(boundaries.pause_ns(1), 2 * RETRY_MIN_NS);
        boundaries.on_grant_failed();
        assert_eq!(boundaries.pause_ns(1), 4 * RETRY_MIN_NS);
        assert_eq!(boundaries.pause_ns(u32::MAX), RETRY_MAX_NS);
    }
}
