//! What goes over connections.

/// A message, or the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The connection has ended.
    Fin,
    Join {
        host: u32,
        is_ring: bool,
        /// Of the caller's, or the last that who rings has taken.
        call: u32,
    },
    Part {
        /// The ranks whose contributions are in it.
        brought: u64,
    },
    Leave,
    Abort {
        at_fault: u32,
    },
    SetUpPart,
    Answer {
        gone: Option<u32>,
    },
    /// To and from a tree's aggregator.
    Ask,
    Grant,
    Ready {
        parts: usize,
        total: usize,
    },
    Results {
        parts: usize,
    },
}
