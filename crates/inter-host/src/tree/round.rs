//! What one round over a member's link and sockets polls.

/// What a round polls before it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Nothing: an operation has just been started, and nobody can have answered.
    First,
    /// Where the result is expected; so many more rounds will.
    Short(u32),
    /// Everything that is due, timers included.
    Full,
}
