//! Bugs that can be planted on purpose, to test that the simulation finds them. One at a time, for the whole process.

use core::sync::atomic::{AtomicU8, Ordering};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A completed operation is not answered for any more.
    AnswersForgotten = 1,
    /// A member that was told "not yet" is not sent the contribution later.
    OwedForgotten = 2,
    /// A member asks only when it has evidence, never by its timer.
    NoTimer = 3,
    /// A disagreement names the member of which it was seen first.
    NamedAsSeen = 4,
    /// A member that is dead is not asked for elsewhere.
    DeadNotAskedFor = 5,
    /// A member leaves without waiting for the others.
    LeavesAtOnce = 6,
    /// A sum goes to the next level as soon as the host's own group has it.
    RaisedEarly = 7,
    /// Groups in which the same hosts meet have one tag.
    RoundForgotten = 8,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AnswersForgotten,
        Self::OwedForgotten,
        Self::NoTimer,
        Self::NamedAsSeen,
        Self::DeadNotAskedFor,
        Self::LeavesAtOnce,
        Self::RaisedEarly,
        Self::RoundForgotten,
    ];

    /// Those that only several levels show.
    pub const OF_LEVELS: [Self; 2] = [Self::RaisedEarly, Self::RoundForgotten];
}

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in every machine of this process, in place of the one before it; or none.
pub fn plant(bug: Option<Bug>) {
    // Ordering: nothing else is published with it.
    PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
}

/// Whether this bug is planted.
pub fn is_planted(bug: Bug) -> bool {
    // Ordering: pairs with the store in `plant`; see there.
    PLANTED.load(Ordering::Relaxed) == bug as u8
}
