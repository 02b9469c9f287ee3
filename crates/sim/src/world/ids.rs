//! Numbers of the simulated machines, processes, ranks and messages.

/// The number of an aggregation node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AggregatorId(pub u32);

impl AggregatorId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

impl ProcessId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a member, over all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

impl MemberId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a rank, over all teams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankId(pub u32);

impl RankId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of what a member of a replicated group says, reused after its receiver has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoticeId(pub(super) u32);

/// The number of a message, reused after its receiver has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferId(pub(super) u32);
