//! Why an operation between hosts can't go on.

use tributary_wire::EndpointId;
use tributary_wire::frame::{Abort, AbortReason, Disagreement, Message};

use super::calls::Call;

/// Why there is no going on, for all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) abort: Abort,
    /// What two hosts called, if that is why.
    pub(crate) disagreement: Option<Disagreement>,
}

impl Verdict {
    /// Host `me` called something else than `other`.
    pub(crate) fn of_calls(me: u32, own: Call, other: u32, theirs: Call) -> Self {
        let members = [me, other].map(EndpointId);
        Disagreement { members, called: [own, theirs].map(|call| call.called) }.into()
    }

    /// What the other hosts are told.
    pub(crate) fn message(self) -> Message {
        self.disagreement.map_or(Message::Abort(self.abort), Message::Disagreement)
    }

    /// Whether the host at fault has to be told, too: it is there.
    pub(crate) fn has_living_culprit(self) -> bool {
        self.abort.reason == AbortReason::Disagreement
    }
}

impl From<Abort> for Verdict {
    fn from(abort: Abort) -> Self {
        Self { abort, disagreement: None }
    }
}

impl From<Disagreement> for Verdict {
    fn from(disagreement: Disagreement) -> Self {
        let [_, at_fault] = disagreement.members;
        let abort = Abort { reason: AbortReason::Disagreement, at_fault };
        Self { abort, disagreement: Some(disagreement) }
    }
}

/// What was found to be wrong; [`Peers::explain`](super::peers::Peers::explain) says whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A host said so, or sent what it must not, or a frame of its own is not authentic.
    Known(Verdict),
    /// The link to this host has ended, or it has left while it was needed. That is no proof that it is
    /// at fault: a host that was told of a failure ends its links, too, and what it said before may
    /// still be unread when sending to it already fails.
    Ended(u32),
}

impl Failure {
    /// What is known for certain.
    pub(crate) fn known_verdict(self) -> Option<Verdict> {
        match self {
            Self::Known(verdict) => Some(verdict),
            Self::Ended(_) => None,
        }
    }
}

impl<V: Into<Verdict>> From<V> for Failure {
    fn from(verdict: V) -> Self {
        Self::Known(verdict.into())
    }
}
