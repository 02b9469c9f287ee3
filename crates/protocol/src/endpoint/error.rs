//! Why an endpoint refused to start an operation, or refused a frame.

use tributary_wire::OperationNumber;
use tributary_wire::frame::Abort;

use super::SpecError;

/// Why an operation was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The caller's specification is invalid.
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
    #[error("this message does not travel over this carrier")]
    WrongCarrier,
    /// A result for a segment that is not in flight, or that differs from its request.
    #[error("result for sequence {sequence} does not match a request")]
    Unexpected {
        /// The sequence number sent.
        sequence: u32,
    },
    /// A stream grant, or a chunk's result, for an operation that did not request a stream or does
    /// not stream now.
    #[error("operation {operation} has no stream grant")]
    StreamNotGranted {
        /// The operation named.
        operation: OperationNumber,
    },
    /// A result without the data that it should have.
    #[error("result for sequence {sequence} lacks its data")]
    MissingData {
        /// The sequence number sent.
        sequence: u32,
    },
}
