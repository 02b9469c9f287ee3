//! Why an operation between hosts can't go on.

use tributary_wire::frame::Abort;

/// What was found to be wrong; [`Peers::explain`](super::peers::Peers::explain) says whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A host said so, or sent what it must not, or a frame of its own is not authentic.
    Known(Abort),
    /// The link to this host has ended, or it has left while it was needed. That is no proof that it is
    /// at fault: a host that was told of a failure ends its links, too, and what it said before may
    /// still be unread when sending to it already fails.
    Ended(u32),
}

impl Failure {
    /// What is known for certain.
    pub(super) fn known(self) -> Option<Abort> {
        match self {
            Self::Known(abort) => Some(abort),
            Self::Ended(_) => None,
        }
    }
}

impl From<Abort> for Failure {
    fn from(abort: Abort) -> Self {
        Self::Known(abort)
    }
}
