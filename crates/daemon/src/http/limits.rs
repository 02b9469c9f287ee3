//! How many connections a daemon serves, and how long a client may keep one waiting.

use std::time::Duration;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at once, including those in a handshake; others wait in the listener's queue.
    pub(super) connections: usize,
    /// How long a client may take for the TLS handshake, and again for a request's head.
    pub(super) head_within: Duration,
    /// How long a client may leave an answer unread.
    pub(super) unread_within: Duration,
}

/// The limits of every daemon.
pub(super) const LIMITS: Limits = Limits {
    connections: 16_384,
    head_within: Duration::from_secs(10),
    unread_within: Duration::from_secs(30),
};
