//! The states that a run may come to. A sweep shows that it comes to all of them.

/// The states that a run may come to, in the order of the counts of an outcome.
pub const STATE_NAMES: [&str; 7] = [
    "death before the first link",
    "death during set-up",
    "leave while others wait",
    "death of a rank that leads nobody",
    "death with a forked worker",
    "streams in opposite orders",
    "death while streaming",
];

pub(super) const BEFORE_LINK: usize = 0;
pub(super) const IN_SET_UP: usize = 1;
pub(super) const LEAVE: usize = 2;
pub(super) const LEADS_NOBODY: usize = 3;
pub(super) const WITH_WORKER: usize = 4;
pub(super) const STREAMS: usize = 5;
pub(super) const STREAMING: usize = 6;
