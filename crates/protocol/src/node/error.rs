//! Why an aggregator refused a frame.

use tributary_wire::frame::Version;
use tributary_wire::{Epoch, GroupId, OperationNumber};

/// Why a frame was refused. The peer is at fault; its link is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No such group here, or not with this epoch.
    #[error("group {group} epoch {epoch} is not served here")]
    UnknownGroup {
        /// The group named.
        group: GroupId,
        /// The epoch named.
        epoch: Epoch,
    },
    /// The frame's layout is not the one granted to the group.
    #[error("frame of version {got}, group {group} was granted version {granted}")]
    WrongVersion {
        /// The group.
        group: GroupId,
        /// The frame's.
        got: Version,
        /// The group's.
        granted: Version,
    },
    /// The capability is not the one granted to that child.
    #[error("forged capability for group {group}")]
    Forged {
        /// The group attacked.
        group: GroupId,
    },
    /// The child's place is taken by another link.
    #[error("child {child} of group {group} has already joined")]
    AlreadyJoined {
        /// The group.
        group: GroupId,
        /// The place.
        child: u16,
    },
    /// A frame before the join, or for another edge than the port's.
    #[error("frame for an edge that this link does not hold")]
    WrongPort,
    /// A message that only travels the other way.
    #[error("this message only travels the other way")]
    WrongDirection,
    /// A segment longer than the group was granted.
    #[error("segment of {bytes} bytes, the group was granted {max_bytes}")]
    TooLong {
        /// Its length.
        bytes: u32,
        /// The grant.
        max_bytes: u32,
    },
    /// A message that travels by datagram came over the link, or the other way round.
    #[error("this message does not travel over this carrier")]
    WrongCarrier,
    /// More segments in flight than the group was granted.
    #[error("sequence {sequence} is outside the {osos} segments granted to the group")]
    OutsideWindow {
        /// The sequence number sent.
        sequence: u32,
        /// The grant.
        osos: u16,
    },
    /// A stream's frame for an operation that has no stream grant.
    #[error("operation {operation} has no stream grant")]
    StreamNotGranted {
        /// The operation named.
        operation: OperationNumber,
    },
    /// A chunk that does not belong to the vector of the stream request.
    #[error("operation {operation} streams no such chunk {chunk}")]
    NotOfStream {
        /// The operation.
        operation: OperationNumber,
        /// Its index, from its sequence number.
        chunk: u32,
    },
    /// A result without a request that waits for it.
    #[error("result for sequence {sequence}, for which none is awaited")]
    Unexpected {
        /// The sequence number sent.
        sequence: u32,
    },
    /// The peer sends requests but takes no results.
    #[error("peer does not read its results")]
    NotReading,
}
