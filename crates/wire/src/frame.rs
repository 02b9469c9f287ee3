//! Frames: a 64-byte header, then the payload that it announces.
//!
//! A header has 64 bytes so that it is one cache line in a shared-memory ring. Everything is
//! little-endian. Bytes from a peer enter only through [`Header::decode`]. It returns a value in
//! which every code is known and the lengths agree, or an error that says what is wrong.

mod authentication;
mod called;
mod layout;
mod replicated;
mod shape;
mod stream;
mod target;
mod version;

use core::num::NonZeroU16;

use crate::{
    Capability, ChildIndex, EndpointId, Epoch, GroupId, OperationNumber, SegmentIndex, Sequence,
    UnknownDatatype, UnknownOperator,
};

pub use authentication::{CODE_BYTES, announces_code, announcing_code, without_code};
pub use called::{Called, Disagreement, Waiting};
pub use layout::CAPABILITY_OFFSET;
pub use replicated::{
    Question, REPEATED_BYTES_MAX, REPEATED_HEAD_BYTES, RepeatedError, RepeatedHead,
};
pub use shape::{PAYLOAD_BYTES_MAX, Shape, ShapeError};
pub use stream::{STREAM_BYTES_MAX, StreamRequest, StreamShape, StreamShapeError};
pub use target::Target;
pub use version::{Version, Versions};

/// First four bytes of every frame: `TRIB`.
pub const MAGIC: [u8; 4] = *b"TRIB";

/// Size of the header.
pub const HEADER_BYTES: usize = 64;

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
    /// The layout of all frames of the group, as the manager granted it.
    pub version: Version,
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
    /// Up: the child has no more operations and gives up its place. Down: all members have left. Down, to the external
    /// receiver: the group has ended, and every result for it was sent.
    Leave,
    /// Either way, over the link: where the sender takes this edge's datagrams (a UDP port of the
    /// address that the link ends at), or that it takes none.
    Datagrams(Option<NonZeroU16>),
    /// Up, as a datagram: asks whether datagrams arrive. Over the link: asks whether the aggregator is there. The
    /// number tells attempts apart.
    Probe(u8),
    /// Down, by what the probe came: the probe with this number arrived.
    Probed(u8),
    /// Down, as a datagram: the request is counted and its result is not there yet. Answers a
    /// repeat, so the child knows that nothing was lost and only a sibling is late.
    Ack {
        /// The request's.
        sequence: Sequence,
        /// Which attempt this answers.
        attempt: u8,
    },
    /// Down, as a datagram: a later request came before this one, so this one is lost.
    Nack {
        /// The request's.
        sequence: Sequence,
    },
    /// Up: who receives results that are sent to the group's multicast address.
    Subscribed(Subscription),
    /// Up: everyone below wants to stream a vector.
    StreamRequest(StreamRequest),
    /// Down: the stream may begin. The aggregator's stream slots belong to the group now.
    StreamGrant(OperationNumber),
    /// Up: one chunk's contribution to the stream that has the grant.
    Chunk(Part),
    /// Down: one chunk's result, or, without data, that it was delivered elsewhere.
    ChunkResult(Part),
    /// Up: everyone below has every result of the stream.
    StreamDone(OperationNumber),
    /// Between hosts that are joined directly: the sender waits for the receiver, and says in what.
    Waiting(Waiting),
    /// Between hosts that are joined directly: the group has failed because members called different operations.
    Disagreement(Disagreement),
    /// Between members of a replicated group: the sender's contribution.
    Contribution(Contribution),
    /// Between members of a replicated group: the level's sum. The level is the part's sequence number.
    LevelSum(Part),
    /// Between members of a replicated group: what a dead member contributed.
    Passed {
        /// Its contribution.
        part: Part,
        /// The dead member.
        of: u8,
    },
    /// Between members of a replicated group: the sender lacks a contribution.
    Ask(Question),
    /// Between members of a replicated group: the sender lacks a contribution that nobody answers for. The receiver sends the
    /// level's sum if it has it, else nothing.
    AskForSum {
        /// The operation.
        operation: OperationNumber,
        /// The level.
        level: u32,
    },
    /// Between members of a replicated group: the sender does not have what it was asked for, and sends it when it does.
    NotYet(Question),
    /// Between members of a replicated group: the sender leaves. It has begun no operation from this one on, and lacks none
    /// before it.
    Departure {
        /// The operation.
        before: OperationNumber,
        /// The level.
        level: u32,
    },
    /// Between members of a replicated group: the sender lacks nothing of the receiver's, which leaves.
    Farewell {
        /// The level.
        level: u32,
    },
}

/// The receivers, at or below one child, of what is sent to the group's multicast address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Subscription {
    /// Nobody any more.
    Nobody = 0,
    /// Somebody below the child, so multicasting is worthwhile; the child itself needs its copies.
    Below = 1,
    /// The child itself. It repeats its request if a result is lost, and needs no copies.
    Here = 2,
}

impl Subscription {
    /// All of them, in code order.
    pub const ALL: [Self; 3] = [Self::Nobody, Self::Below, Self::Here];
}

/// The child in frames to a group's multicast address, which go to every child of every aggregator. No
/// edge has this number.
pub const EVERYONE: ChildIndex = ChildIndex(u16::MAX);

/// The child in frames between a group's root and its external receiver. No child has this number.
pub const EXTERNAL_RECEIVER: ChildIndex = ChildIndex(u16::MAX - 1);

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
    /// State of the recovery of lost frames.
    pub retransmit: RetransmitState,
}

/// State of the recovery of lost frames that travels with a segment. It does not identify the
/// segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetransmitState {
    /// In a request: how often it was sent before, up to 255. In a result: the attempt that it
    /// answers, so the receiver does not measure the round trip of an earlier attempt.
    pub attempt: u8,
    /// In a result: how many sequence numbers before this one lies the first whose result the
    /// sender does not have; 0 if there is none. Whatever lies before that one and has not arrived
    /// was lost. In a request always 0.
    pub behind: u16,
}

impl Part {
    /// Whether both describe the same segment. They may differ in whether they have data (a
    /// completion has none, and only one member of a broadcast has some) and in the retransmit
    /// state.
    #[must_use]
    pub fn is_same_segment(&self, other: &Self) -> bool {
        Self { has_data: other.has_data, retransmit: other.retransmit, ..*self } == *other
    }

    /// Length of the payload that follows the header.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        if self.has_data { self.shape.bytes() } else { 0 }
    }
}

/// A member's contribution to an operation of a replicated group. Its level is the part's sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// The contribution.
    pub part: Part,
    /// How many bytes of the payload, behind it, are its sender's contribution to the operation before, with its head; 0
    /// if it is not repeated.
    pub repeated_bytes: u16,
}

impl Contribution {
    /// Length of the payload that follows the header.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        self.part.payload_bytes() + self.repeated_bytes as usize
    }
}

/// Why a group failed, and whose failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// What happened.
    pub reason: AbortReason,
    /// The member at fault, or the first member below the aggregator at fault.
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
    /// The external receiver did not read its results in time. Only the external receiver is told.
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
    #[error("{got_bytes} bytes are too few for a frame: its header has {HEADER_BYTES}")]
    Truncated {
        /// What there was.
        got_bytes: usize,
    },
    /// Not this protocol at all.
    #[error("frame starts with {0:02x?}, not with {MAGIC:02x?}")]
    BadMagic([u8; 4]),
    /// This protocol in another version.
    #[error("frame has version {0}, this side speaks {spoken}", spoken = Versions::SPOKEN)]
    BadVersion(u8),
    /// A kind that is not defined.
    #[error("frame kind {0} is not defined")]
    UnknownKind(u8),
    /// An operator that is not defined.
    #[error(transparent)]
    Operator(#[from] UnknownOperator),
    /// A datatype that is not defined.
    #[error(transparent)]
    Datatype(#[from] UnknownDatatype),
    /// Operator, datatype and count that do not fit together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Operator, datatype and count that are not a valid stream.
    #[error(transparent)]
    StreamShape(#[from] StreamShapeError),
    /// A target that is not defined.
    #[error("result target {0} is not defined")]
    UnknownTarget(u8),
    /// A stream whose result goes to an external receiver.
    #[error("a stream's result can't go to an external receiver (target {0})")]
    StreamTarget(u8),
    /// An abort reason that is not defined.
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
    /// What repeats the contribution before, and can't.
    #[error(transparent)]
    Repeated(#[from] RepeatedError),
    /// A field that this kind of frame must leave zero is not zero.
    #[error("frame sets a reserved field")]
    ReservedField,
}

#[cfg(test)]
mod tests;
