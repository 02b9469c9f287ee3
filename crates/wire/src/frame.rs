//! The one frame: a 64-byte header, then the payload it announces.
//!
//! 64 bytes, so that a header is one cache line in a shared-memory ring. Everything is
//! little-endian. [`Header::decode`] is the only way in: it turns bytes from a peer into a value in
//! which every code is known and the lengths agree, or says what is wrong with them.

mod layout;
mod seal;
mod shape;
mod stream;

use core::num::NonZeroU16;
use core::ops::Range;

use crate::{
    Capability, ChildIndex, EndpointId, Epoch, GroupId, OperationNumber, SegmentIndex, Sequence,
    UnknownDatatype, UnknownOperator,
};

pub use seal::{SEAL_BYTES, announces_seal, announcing_seal, without_seal};
pub use shape::{Shape, ShapeError};
pub use stream::{STREAM_BYTES_MAX, StreamAsk, StreamShape, StreamShapeError};

/// First four bytes of every frame: `TRIB`.
pub const MAGIC: [u8; 4] = *b"TRIB";

/// Version of the layout below. A peer that speaks another is refused, not guessed at.
pub const VERSION: u8 = 2;

/// Size of the header.
pub const HEADER_BYTES: usize = 64;

/// Longest payload any frame may announce: what a receiver must be able to hold.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// A frame's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The edge of the tree this frame travels along.
    pub edge: Edge,
    /// What it says.
    pub message: Message,
}

/// One edge of a group's tree: a child and, implicitly, its parent.
///
/// Frames in both directions carry it, so each side knows that the other holds the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The group.
    pub group: GroupId,
    /// The incarnation of the group.
    pub epoch: Epoch,
    /// The lower end of the edge, in the parent's child order.
    pub child: ChildIndex,
    /// What the manager granted to the lower end.
    pub capability: Capability,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Up: the child is here and wants its place.
    Join,
    /// Down: the place is taken.
    Joined,
    /// Up: one segment's contribution.
    Request(Part),
    /// Down: one segment's result, or, without data, that it was delivered elsewhere.
    Result(Part),
    /// Either way: the group has failed.
    Abort(Abort),
    /// Up: the child has no more operations and gives its place back. Down, to the process outside
    /// the group: the group has ended, and every result for that process was sent.
    Leave,
    /// Either way, over the link: where the sender takes this edge's datagrams (a UDP port of the
    /// address that the link ends at), or that it takes none.
    Datagrams(Option<NonZeroU16>),
    /// Up, as a datagram: does this arrive? The number tells attempts apart.
    Probe(u8),
    /// Down, as a datagram: the probe with this number arrived.
    Probed(u8),
    /// Down, as a datagram: the request is counted, its result not there yet. Answers a repeat, so
    /// that whoever waits for a late sibling knows that nothing was lost.
    Held {
        /// The request's.
        sequence: Sequence,
        /// Which attempt this answers.
        attempt: u8,
    },
    /// Down, as a datagram: a later request has come before this one, which is therefore lost.
    Missing {
        /// The request's.
        sequence: Sequence,
    },
    /// Up: who hears results that are sent to the group's multicast address.
    Hears(Hearing),
    /// Up: everyone below wants to stream a vector.
    StreamAsk(StreamAsk),
    /// Down: the stream may begin; the node's stream slots are the group's.
    StreamTurn(OperationNumber),
    /// Up: one chunk's contribution to the stream whose turn it is.
    Chunk(Part),
    /// Down: one chunk's result, or, without data, that it was delivered elsewhere.
    ChunkResult(Part),
    /// Up: everyone below has every result of the stream.
    StreamDone(OperationNumber),
}

/// Who at or below one child hears what is sent to the group's multicast address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Hearing {
    /// Nobody, any more.
    Nobody = 0,
    /// Somebody below the child, so that it is worth sending; the child itself needs its copies.
    Below = 1,
    /// The child: it asks for what it misses.
    Here = 2,
}

impl Hearing {
    /// All of them, in code order.
    pub const ALL: [Self; 3] = [Self::Nobody, Self::Below, Self::Here];
}

/// In frames sent to a group's multicast address: every child of every node. No edge has it.
pub const EVERYONE: ChildIndex = ChildIndex(u16::MAX);

/// In frames between a group's root and the process outside the group: that process. No child has it.
pub const OUTSIDER: ChildIndex = ChildIndex(u16::MAX - 1);

/// One segment of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The operation.
    pub operation: OperationNumber,
    /// Which piece of its vector.
    pub segment: SegmentIndex,
    /// The running number that chooses the slot.
    pub sequence: Sequence,
    /// What the elements are and how they combine.
    pub shape: Shape,
    /// Where the result goes.
    pub target: Target,
    /// Whether a payload follows. Without one, a request contributes nothing (a barrier, or a
    /// broadcast at a member that isn't its source), and a result is a completion only.
    pub has_data: bool,
    /// What the recovery of lost frames adds.
    pub trail: Trail,
}

/// What the recovery of lost frames adds to a segment. It is no part of what the segment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// In a request: how often it was sent before, as far as a byte can count. In a result: the
    /// attempt that it answers, so that its round trip can be told from an earlier one's.
    pub attempt: u8,
    /// In a result: how far before this sequence number the earliest lies whose result the sender
    /// does not have; 0 if it has them all, in a request too. What lies before that and has not
    /// arrived was lost.
    pub behind: u16,
}

impl Part {
    /// Whether both describe the same segment. Whether they have data may differ (a completion has
    /// none, and a broadcast's members differ in it), and so may what loss recovery adds.
    #[must_use]
    pub fn is_same_segment(&self, other: &Self) -> bool {
        Self { has_data: other.has_data, trail: other.trail, ..*self } == *other
    }

    /// Length of the payload that follows the header.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        if self.has_data { self.shape.bytes() } else { 0 }
    }
}

/// Where a result goes. Members that are no target get a completion without data.
///
/// A result for all is multicast besides where the group has an address; a target of its own for
/// that has a code reserved in `docs/wire.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every member.
    All,
    /// One member.
    Member(EndpointId),
    /// The process outside the group.
    Outsider,
    /// Every member, and the process outside the group.
    AllAndOutsider,
    /// One member, and the process outside the group.
    MemberAndOutsider(EndpointId),
}

impl Target {
    /// Whether every member is a target.
    #[must_use]
    pub const fn is_all(self) -> bool {
        matches!(self, Self::All | Self::AllAndOutsider)
    }

    /// The one member that is a target, if there is one.
    #[must_use]
    pub const fn member(self) -> Option<EndpointId> {
        match self {
            Self::Member(member) | Self::MemberAndOutsider(member) => Some(member),
            Self::All | Self::Outsider | Self::AllAndOutsider => None,
        }
    }

    /// Whether the process outside the group is a target.
    #[must_use]
    pub const fn has_outsider(self) -> bool {
        matches!(self, Self::Outsider | Self::AllAndOutsider | Self::MemberAndOutsider(_))
    }

    /// Whether any of these members is a target.
    #[must_use]
    pub fn is_among(self, members: &Range<EndpointId>) -> bool {
        self.is_all() || self.member().is_some_and(|member| members.contains(&member))
    }

    /// The same, and the process outside the group besides.
    #[must_use]
    pub const fn with_outsider(self) -> Self {
        match self {
            Self::All => Self::AllAndOutsider,
            Self::Member(member) => Self::MemberAndOutsider(member),
            other => other,
        }
    }
}

/// Why a group failed, and whose failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// What happened.
    pub reason: AbortReason,
    /// The member at fault, or the first member below the node at fault.
    pub at_fault: EndpointId,
}

/// What made a group fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[repr(u8)]
pub enum AbortReason {
    /// A member's process is gone, or its connection is.
    #[error("a member was lost")]
    MemberLost = 1,
    /// An aggregation node is gone, or its connection is.
    #[error("an aggregation node was lost")]
    NodeLost = 2,
    /// Members started different operations under one number.
    #[error("members disagree on what an operation is")]
    Disagreement = 3,
    /// Not every child took its place in time.
    #[error("a member did not join in time")]
    JoinTimeout = 4,
    /// The manager took the group back.
    #[error("the manager withdrew the group")]
    Withdrawn = 5,
    /// A member said so itself (its application failed).
    #[error("a member aborted")]
    MemberAborted = 6,
    /// A peer broke the protocol.
    #[error("a peer broke the protocol")]
    Misbehaved = 7,
    /// A process outside the group did not read its results in time. Said to that process only.
    #[error("a process outside the group did not read its results in time")]
    FellBehind = 8,
    /// A frame on a direct link has no code or a wrong one: somebody else sent or altered it.
    #[error("a frame was not authentic")]
    NotAuthentic = 9,
}

impl AbortReason {
    /// Every reason, in code order.
    pub const ALL: [Self; 9] = [
        Self::MemberLost,
        Self::NodeLost,
        Self::Disagreement,
        Self::JoinTimeout,
        Self::Withdrawn,
        Self::MemberAborted,
        Self::Misbehaved,
        Self::FellBehind,
        Self::NotAuthentic,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code)
    }
}

/// Why bytes from a peer are no frame. The sender is at fault, never the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes than a header.
    #[error("{got_bytes} bytes are no frame: its header alone has {HEADER_BYTES}")]
    Truncated {
        /// What there was.
        got_bytes: usize,
    },
    /// Not this protocol at all.
    #[error("frame starts with {0:02x?}, not with {MAGIC:02x?}")]
    BadMagic([u8; 4]),
    /// This protocol in another version.
    #[error("frame has version {0}, this side speaks {VERSION}")]
    BadVersion(u8),
    /// A kind of message nobody defined.
    #[error("frame kind {0} is not defined")]
    UnknownKind(u8),
    /// An operator nobody defined.
    #[error(transparent)]
    Operator(#[from] UnknownOperator),
    /// A datatype nobody defined.
    #[error(transparent)]
    Datatype(#[from] UnknownDatatype),
    /// Operator, datatype and count that don't go together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Operator, datatype and count that make no stream.
    #[error(transparent)]
    StreamShape(#[from] StreamShapeError),
    /// A target nobody defined.
    #[error("result target {0} is not defined")]
    UnknownTarget(u8),
    /// A failure reason nobody defined.
    #[error("abort reason {0} is not defined")]
    UnknownReason(u8),
    /// The announced payload isn't the one the shape needs.
    #[error("frame announces {announced_bytes} bytes of payload, its shape has {needed_bytes}")]
    WrongLength {
        /// What the header says.
        announced_bytes: u32,
        /// What it should say.
        needed_bytes: u32,
    },
    /// A reduction without a contribution, or a barrier with one.
    #[error("frame has data where its operation has none, or none where it needs some")]
    DataMismatch,
    /// A field that this kind of frame leaves zero isn't.
    #[error("frame sets a reserved field")]
    ReservedField,
}

#[cfg(test)]
mod tests;
