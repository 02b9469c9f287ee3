//! What selection has to know of an operation.

use tributary_algorithms::CollectiveKind;

/// What is asked about one operation: all that its path depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The collective.
    pub kind: CollectiveKind,
    /// Elements of a contribution.
    pub elements: u64,
    /// Length of a contribution.
    pub len_bytes: u64,
    /// Whether the result is the same in whatever order values are combined.
    pub is_exact: bool,
    /// Whether the caller brings the operator, which no aggregator can call.
    pub has_own_operator: bool,
}
