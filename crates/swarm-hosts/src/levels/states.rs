//! The states that hosts in groups may come to. A sweep shows that they come to all of them.

/// In the order of the counts of a report.
pub const STATE_NAMES: [&str; 8] = [
    "operation over several levels",
    "operation of a host that stands in",
    "contribution had over a link",
    "sum had over a link",
    "contribution of a dead host had from another",
    "death in an operation of groups",
    "leave while others wait in groups",
    "hosts of a group call differently",
];

pub(super) const SEVERAL_LEVELS: usize = 0;
pub(super) const STANDS_IN: usize = 1;
pub(super) const CONTRIBUTION: usize = 2;
pub(super) const SUM: usize = 3;
pub(super) const PASSED: usize = 4;
pub(super) const DEATH: usize = 5;
pub(super) const LEAVE: usize = 6;
pub(super) const DISAGREEMENT: usize = 7;
