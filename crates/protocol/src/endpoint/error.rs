//! Why an endpoint would not start an operation, or take a frame.

use tributary_wire::OperationNumber;
use tributary_wire::frame::Abort;

use super::SpecError;

/// Why an operation was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The caller's operation is none.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// As many operations as allowed are under way; finish one first.
    #[error("{max} operations are already under way")]
    Busy {
        /// The limit.
        max: usize,
    },
    /// The group has failed.
    #[error("the group has failed: {}", .0.reason)]
    Failed(Abort),
    /// The member has left the group.
    #[error("this member has left the group")]
    Left,
}

/// Why a frame was refused. The aggregation node is at fault; its link is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame for another group, epoch or child, or with another capability.
    #[error("frame for an edge that this member does not hold")]
    WrongEdge,
    /// A message that only travels upward.
    #[error("this message only travels upward")]
    WrongDirection,
    /// A message that travels by datagram came over the link, or the other way round.
    #[error("this message is not carried that way")]
    WrongCarrier,
    /// A result for a segment that is not in flight, or not described as it was asked.
    #[error("result for sequence {sequence} does not match what was asked")]
    Unexpected {
        /// The sequence number sent.
        sequence: u32,
    },
    /// A stream's word for an operation that streams nothing now.
    #[error("it is not operation {operation}'s turn to stream")]
    OutOfTurn {
        /// The operation named.
        operation: OperationNumber,
    },
    /// A result that should bring data and doesn't.
    #[error("result for sequence {sequence} lacks its data")]
    MissingData {
        /// The sequence number sent.
        sequence: u32,
    },
}
