//! How long the parts of a system wait for one another, as the daemons and the host library do.

/// After so long without a message, a link's end, or one side of a conversation with the manager,
/// gives up the other, as the daemons do.
pub(super) const SILENCE_NS: u64 = 5_000_000_000;

/// How long a link may stay over which nobody joins, or whose last message was sent.
pub(super) const OVERDUE_NS: u64 = 2_000_000_000;

/// How long the children of a new group may take to join.
pub(super) const JOIN_TIMEOUT_NS: u64 = 10_000_000_000;
