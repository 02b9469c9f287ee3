//! Numbers of the simulated machines, processes, ranks and messages.

/// Names an aggregation node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AggregatorId(pub u32);

impl AggregatorId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

impl ProcessId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

impl MemberId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a rank, over all teams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankId(pub u32);

impl RankId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names a message until its receiver has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferId(pub(super) u32);
