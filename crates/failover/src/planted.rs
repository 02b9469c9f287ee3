//! Bugs that can be planted on purpose, to test that the swarm finds them.
//!
//! Only with the feature `planted-bugs`, which only the swarm's own test uses. One bug at a time is
//! planted, for the whole process.

use core::sync::atomic::{AtomicU8, Ordering};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A contribution that comes again over a link is counted again.
    DoubleCount = 1,
    /// The same for a contribution that comes again as a datagram.
    DoubleDatagram = 2,
    /// A stream lock is given to every group that asks, even if another one has it.
    SharedLock = 3,
    /// The stream lock of a group that fails while it streams is never freed.
    LostLock = 4,
    /// A stream lock goes to the group that came last.
    UnfairLock = 5,
    /// A child that sent its request over its link, and so never repeats it, gets no reliable copy.
    SparedCopy = 6,
    /// A parent calls a lost aggregator a lost member.
    NodeCalledMember = 7,
    /// An aggregator that loses its parent fails its group, and tells nobody below.
    SilentOrphan = 8,
    /// Time that goes back is taken for impossible.
    TimeOnlyForward = 9,
    /// The manager says of few aggregators only that they are aggregators.
    FewNodesNamed = 10,
    /// A frame's code covers its header only. In the swarm's stand-in for the transport's codes.
    CodeOfHeader = 11,
    /// A manager that takes groups over does not count the operations that they hold.
    UncountedAdoption = 12,
    /// A manager that takes groups over does not end their jobs with them.
    EternalJob = 13,
    /// What some member has of an operation whose tree is lost is computed again.
    ComputedAnew = 14,
    /// An operation that some members have completed is started again by the others.
    CompletedForgotten = 15,
    /// Members take a group that the manager withdrew for one that ends.
    WithdrawnIsTheEnd = 16,
    /// Where the next boundary lies is forgotten, unless there is a grant.
    BoundaryForgotten = 17,
    /// An aggregator's machine is not told of results that were made inside the kernel.
    ResultsUntold = 18,
    /// Nor of what was sent to the parent there, when it takes that over.
    ForwardedUntold = 19,
    /// A host rings only where it had a link before.
    NeverRung = 20,
    /// A `Leave` over a ring ends no wait.
    LeaveForgotten = 21,
    /// The process that gathers a set-up's exchange looks only at the one whose part is next.
    GatheredInTurn = 22,
    /// A leader that waits for other hosts does not look whether the ranks of its own live.
    HostOverlooked = 23,
    /// Forked children keep their copies of connections.
    CopiesKept = 24,
    /// A leader asks for the stream lock before the ranks of its host have come.
    LockBeforeRanks = 25,
    /// An aggregator tells its children that all members have left once those below it have.
    EndToldEarly = 26,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::DoubleCount,
        Self::DoubleDatagram,
        Self::SharedLock,
        Self::LostLock,
        Self::UnfairLock,
        Self::SparedCopy,
        Self::NodeCalledMember,
        Self::SilentOrphan,
        Self::TimeOnlyForward,
        Self::FewNodesNamed,
        Self::CodeOfHeader,
        Self::UncountedAdoption,
        Self::EternalJob,
        Self::ComputedAnew,
        Self::CompletedForgotten,
        Self::WithdrawnIsTheEnd,
        Self::BoundaryForgotten,
        Self::ResultsUntold,
        Self::ForwardedUntold,
        Self::NeverRung,
        Self::LeaveForgotten,
        Self::GatheredInTurn,
        Self::HostOverlooked,
        Self::CopiesKept,
        Self::LockBeforeRanks,
        Self::EndToldEarly,
    ];
}

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in every machine of this process, in place of the one before it; or none.
pub fn plant(bug: Option<Bug>) {
    // Ordering: nothing else is published with it. The threads that run into the bug are started
    // after it was planted.
    PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
}

/// Whether this bug is planted.
pub fn is_planted(bug: Bug) -> bool {
    // Ordering: pairs with the store in `plant`; see there.
    PLANTED.load(Ordering::Relaxed) == bug as u8
}
