//! Why a group did not take a message.

use tributary_wire::frame::Abort;

use crate::node::FrameError;

/// Why a group did not take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum GroupError {
    /// The frame breaks the protocol. The group is as it was.
    Refused(FrameError),
    /// The group cannot go on. The aggregator fails it.
    Failed(Abort),
}

impl From<FrameError> for GroupError {
    fn from(error: FrameError) -> Self {
        Self::Refused(error)
    }
}

impl From<Abort> for GroupError {
    fn from(abort: Abort) -> Self {
        Self::Failed(abort)
    }
}
