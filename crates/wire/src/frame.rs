//! The one frame: a 64-byte header, then the payload it announces.
//!
//! 64 bytes, so that a header is one cache line in a shared-memory ring. Everything is
//! little-endian. [`Header::decode`] is the only way in: it turns bytes from a peer into a value in
//! which every code is known and the lengths agree, or says what is wrong with them.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{
    Capability, ChildIndex, Datatype, EndpointId, Epoch, GroupId, OperationNumber, Operator,
    SegmentIndex, Sequence, UnknownDatatype, UnknownOperator,
};

mod stream;

pub use stream::{STREAM_BYTES_MAX, StreamAsk, StreamShape, StreamShapeError};

/// First four bytes of every frame: `TRIB`.
pub const MAGIC: [u8; 4] = *b"TRIB";

/// Version of the layout below. A peer that speaks another is refused, not guessed at.
pub const VERSION: u8 = 1;

/// Size of the header.
pub const HEADER_BYTES: usize = 64;

/// Longest payload any frame may announce: what a receiver must be able to hold.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// A header as it lies on the wire. It never judges; [`Header`] does.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    has_data: u8,
    reason: u8,
    payload_bytes: U32,
    group: U32,
    epoch: U32,
    operation: U32,
    segment: U32,
    sequence: U32,
    elements: U32,
    target_member: U32,
    target_kind: u8,
    datatype: u8,
    operator: u8,
    reserved: u8,
    child: U16,
    reserved_too: U16,
    capability: [u8; 16],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

const KIND_JOIN: u8 = 1;
const KIND_JOINED: u8 = 2;
const KIND_REQUEST: u8 = 3;
const KIND_RESULT: u8 = 4;
const KIND_ABORT: u8 = 5;
const KIND_LEAVE: u8 = 6;
const KIND_STREAM_ASK: u8 = 16;
const KIND_STREAM_TURN: u8 = 17;
const KIND_CHUNK: u8 = 18;
const KIND_CHUNK_RESULT: u8 = 19;
const KIND_STREAM_DONE: u8 = 20;

const TARGET_NONE: u8 = 0;
const TARGET_ALL: u8 = 1;
const TARGET_MEMBER: u8 = 2;

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
    /// Up: the child has no more operations and gives its place back.
    Leave,
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
}

impl Part {
    /// Length of the payload that follows the header.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        if self.has_data { self.shape.bytes() } else { 0 }
    }
}

/// What one segment's elements are and how they combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    operator: Operator,
    datatype: Datatype,
    elements: u32,
}

/// Why an operator, a datatype and a count don't make a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The operator is not defined on the datatype.
    #[error("{} is not defined on {}", operator.name(), datatype.name())]
    NotDefined {
        /// The operator asked for.
        operator: Operator,
        /// The datatype it was asked for on.
        datatype: Datatype,
    },
    /// A vector operation on no elements: complete without the tree.
    #[error("a segment has at least one element")]
    Empty,
    /// More bytes than a frame may carry.
    #[error("a segment of {bytes} bytes exceeds the {PAYLOAD_BYTES_MAX} a frame may carry")]
    TooLong {
        /// The length asked for.
        bytes: u64,
    },
}

impl Shape {
    /// No elements, nothing to combine.
    pub const BARRIER: Self =
        Self { operator: Operator::Barrier, datatype: Datatype::U8, elements: 0 };

    /// A segment of `elements` elements.
    ///
    /// # Errors
    /// If the operator isn't defined on the datatype, or the length is zero or more than
    /// [`PAYLOAD_BYTES_MAX`]. A barrier is [`Shape::BARRIER`] and nothing else.
    pub fn new(operator: Operator, datatype: Datatype, elements: u32) -> Result<Self, ShapeError> {
        if operator == Operator::Barrier && datatype == Datatype::U8 && elements == 0 {
            return Ok(Self::BARRIER);
        }
        if !operator.applies_to(datatype) {
            return Err(ShapeError::NotDefined { operator, datatype });
        }
        if elements == 0 {
            return Err(ShapeError::Empty);
        }
        let bytes = u64::from(elements) * datatype.size_bytes() as u64;
        if bytes > PAYLOAD_BYTES_MAX as u64 {
            return Err(ShapeError::TooLong { bytes });
        }
        Ok(Self { operator, datatype, elements })
    }

    /// How elements combine.
    #[must_use]
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// What an element is.
    #[must_use]
    pub const fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// How many elements.
    #[must_use]
    pub const fn elements(&self) -> u32 {
        self.elements
    }

    /// Length of the elements.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.elements as usize * self.datatype.size_bytes()
    }
}

/// Where a result goes.
///
/// A process outside the group and a multicast address have codes reserved in `docs/wire.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every member.
    All,
    /// One member; the others get a completion without data.
    Member(EndpointId),
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
}

impl AbortReason {
    /// Every reason, in code order.
    pub const ALL: [Self; 7] = [
        Self::MemberLost,
        Self::NodeLost,
        Self::Disagreement,
        Self::JoinTimeout,
        Self::Withdrawn,
        Self::MemberAborted,
        Self::Misbehaved,
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

impl Header {
    /// Length of the payload that follows this header.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        match &self.message {
            Message::Request(part)
            | Message::Result(part)
            | Message::Chunk(part)
            | Message::ChunkResult(part) => part.payload_bytes(),
            Message::Join
            | Message::Joined
            | Message::Abort(_)
            | Message::Leave
            | Message::StreamAsk(_)
            | Message::StreamTurn(_)
            | Message::StreamDone(_) => 0,
        }
    }

    /// Reads a header from the first [`HEADER_BYTES`] of `bytes`; the payload is what follows, and
    /// need not be there yet.
    ///
    /// # Errors
    /// If the bytes are not a frame this version defines.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, _) = RawHeader::ref_from_prefix(bytes)
            .map_err(|_| DecodeError::Truncated { got_bytes: bytes.len() })?;
        if raw.magic != MAGIC {
            return Err(DecodeError::BadMagic(raw.magic));
        }
        if raw.version != VERSION {
            return Err(DecodeError::BadVersion(raw.version));
        }
        if raw.reserved != 0 || raw.reserved_too.get() != 0 {
            return Err(DecodeError::ReservedField);
        }
        let message = raw.message()?;
        let edge = Edge {
            group: GroupId(raw.group.get()),
            epoch: Epoch(raw.epoch.get()),
            child: ChildIndex(raw.child.get()),
            capability: Capability::from_bytes(raw.capability),
        };
        let header = Self { edge, message };
        let needed_bytes = header.payload_bytes() as u32;
        let announced_bytes = raw.payload_bytes.get();
        if announced_bytes != needed_bytes {
            return Err(DecodeError::WrongLength { announced_bytes, needed_bytes });
        }
        Ok(header)
    }

    /// Lays the header out for the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = RawHeader::new_zeroed();
        raw.magic = MAGIC;
        raw.version = VERSION;
        raw.payload_bytes = U32::new(self.payload_bytes() as u32);
        raw.group = U32::new(self.edge.group.0);
        raw.epoch = U32::new(self.edge.epoch.0);
        raw.child = U16::new(self.edge.child.0);
        raw.capability = self.edge.capability.to_bytes();
        match self.message {
            Message::Join => raw.kind = KIND_JOIN,
            Message::Joined => raw.kind = KIND_JOINED,
            Message::Leave => raw.kind = KIND_LEAVE,
            Message::Request(part) => raw.put_part(KIND_REQUEST, &part),
            Message::Result(part) => raw.put_part(KIND_RESULT, &part),
            Message::Chunk(part) => raw.put_part(KIND_CHUNK, &part),
            Message::ChunkResult(part) => raw.put_part(KIND_CHUNK_RESULT, &part),
            Message::StreamAsk(ask) => raw.put_ask(&ask),
            Message::StreamTurn(operation) => {
                raw.kind = KIND_STREAM_TURN;
                raw.operation = U32::new(operation.0);
            }
            Message::StreamDone(operation) => {
                raw.kind = KIND_STREAM_DONE;
                raw.operation = U32::new(operation.0);
            }
            Message::Abort(abort) => {
                raw.kind = KIND_ABORT;
                raw.reason = abort.reason as u8;
                raw.target_member = U32::new(abort.at_fault.0);
            }
        }
        zerocopy::transmute!(raw)
    }
}

impl RawHeader {
    fn message(&self) -> Result<Message, DecodeError> {
        match self.kind {
            KIND_REQUEST => Ok(Message::Request(self.contribution()?)),
            KIND_RESULT => Ok(Message::Result(self.part()?)),
            KIND_CHUNK => Ok(Message::Chunk(self.contribution()?)),
            KIND_CHUNK_RESULT => Ok(Message::ChunkResult(self.part()?)),
            KIND_STREAM_ASK => Ok(Message::StreamAsk(self.stream_ask()?)),
            KIND_STREAM_TURN | KIND_STREAM_DONE => {
                let operation = self.operation_alone()?;
                Ok(match self.kind {
                    KIND_STREAM_TURN => Message::StreamTurn(operation),
                    _ => Message::StreamDone(operation),
                })
            }
            KIND_ABORT => {
                self.expect_no_part()?;
                let reason = AbortReason::from_code(self.reason)
                    .ok_or(DecodeError::UnknownReason(self.reason))?;
                let at_fault = EndpointId(self.target_member.get());
                Ok(Message::Abort(Abort { reason, at_fault }))
            }
            KIND_JOIN | KIND_JOINED | KIND_LEAVE => {
                self.expect_no_part()?;
                if self.reason != 0 || self.target_member.get() != 0 {
                    return Err(DecodeError::ReservedField);
                }
                Ok(match self.kind {
                    KIND_JOIN => Message::Join,
                    KIND_JOINED => Message::Joined,
                    _ => Message::Leave,
                })
            }
            other => Err(DecodeError::UnknownKind(other)),
        }
    }

    /// A part that travels upward.
    fn contribution(&self) -> Result<Part, DecodeError> {
        let part = self.part()?;
        // A contributor without data would silently drop out of a reduction.
        if part.shape.operator.is_reduction() && !part.has_data {
            return Err(DecodeError::DataMismatch);
        }
        Ok(part)
    }

    fn part(&self) -> Result<Part, DecodeError> {
        if self.reason != 0 {
            return Err(DecodeError::ReservedField);
        }
        let operator = Operator::from_code(self.operator)?;
        let datatype = Datatype::from_code(self.datatype)?;
        let shape = Shape::new(operator, datatype, self.elements.get())?;
        let target = self.target()?;
        let has_data = match self.has_data {
            0 => false,
            1 if operator != Operator::Barrier => true,
            _ => return Err(DecodeError::DataMismatch),
        };
        Ok(Part {
            operation: OperationNumber(self.operation.get()),
            segment: SegmentIndex(self.segment.get()),
            sequence: Sequence(self.sequence.get()),
            shape,
            target,
            has_data,
        })
    }

    fn target(&self) -> Result<Target, DecodeError> {
        match (self.target_kind, self.target_member.get()) {
            (TARGET_ALL, 0) => Ok(Target::All),
            (TARGET_ALL, _) => Err(DecodeError::ReservedField),
            (TARGET_MEMBER, member) => Ok(Target::Member(EndpointId(member))),
            (other, _) => Err(DecodeError::UnknownTarget(other)),
        }
    }

    fn expect_no_part(&self) -> Result<(), DecodeError> {
        let words = [self.operation, self.segment, self.sequence, self.elements];
        let bytes = [self.has_data, self.datatype, self.operator, self.target_kind];
        if words.iter().any(|word| word.get() != 0) || bytes.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::ReservedField);
        }
        Ok(())
    }

    fn put_part(&mut self, kind: u8, part: &Part) {
        self.kind = kind;
        self.has_data = u8::from(part.has_data);
        self.operation = U32::new(part.operation.0);
        self.segment = U32::new(part.segment.0);
        self.sequence = U32::new(part.sequence.0);
        self.elements = U32::new(part.shape.elements);
        self.datatype = part.shape.datatype.code();
        self.operator = part.shape.operator.code();
        self.put_target(part.target);
    }

    fn put_target(&mut self, target: Target) {
        let (target_kind, target_member) = match target {
            Target::All => (TARGET_ALL, 0),
            Target::Member(EndpointId(member)) => (TARGET_MEMBER, member),
        };
        debug_assert_ne!(target_kind, TARGET_NONE);
        self.target_kind = target_kind;
        self.target_member = U32::new(target_member);
    }
}

#[cfg(test)]
mod tests;
