//! Layout of a header on the wire.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::replicated::{RepeatedError, check_length};
use super::{
    Abort, AbortReason, Called, Contribution, DecodeError, Disagreement, Edge, HEADER_BYTES,
    Header, MAGIC, Message, PAYLOAD_BYTES_MAX, Part, Question, RetransmitState, Shape,
    StreamRequest, StreamShape, Subscription, Target, Version, Waiting,
};
use crate::{
    Capability, ChildIndex, Datatype, EndpointId, Epoch, GroupId, OperationNumber, Operator,
    SegmentIndex, Sequence,
};

/// A header as it lies on the wire, unchecked. [`Header`] is the checked form.
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
    attempt: u8,
    child: U16,
    detail: U16,
    capability: [u8; 16],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// Where in a header the capability begins, for those who judge frames without decoding them.
pub const CAPABILITY_OFFSET: usize = core::mem::offset_of!(RawHeader, capability);

const KIND_JOIN: u8 = 1;
const KIND_JOINED: u8 = 2;
const KIND_REQUEST: u8 = 3;
const KIND_RESULT: u8 = 4;
const KIND_ABORT: u8 = 5;
const KIND_LEAVE: u8 = 6;
const KIND_DATAGRAMS: u8 = 7;
const KIND_PROBE: u8 = 8;
const KIND_PROBED: u8 = 9;
const KIND_ACK: u8 = 10;
const KIND_NACK: u8 = 11;
const KIND_SUBSCRIBED: u8 = 12;
const KIND_STREAM_REQUEST: u8 = 16;
const KIND_STREAM_GRANT: u8 = 17;
const KIND_CHUNK: u8 = 18;
const KIND_CHUNK_RESULT: u8 = 19;
const KIND_STREAM_DONE: u8 = 20;
const KIND_WAITING: u8 = 24;
const KIND_DISAGREEMENT: u8 = 25;
const KIND_CONTRIBUTION: u8 = 26;
const KIND_LEVEL_SUM: u8 = 27;
const KIND_PASSED: u8 = 28;
const KIND_ASK: u8 = 29;
const KIND_NOT_YET: u8 = 30;
const KIND_ASK_FOR_SUM: u8 = 31;
const KIND_DEPARTURE: u8 = 32;
const KIND_FAREWELL: u8 = 33;

const TARGET_NONE: u8 = 0;
pub(super) const TARGET_ALL: u8 = 1;
const TARGET_MEMBER: u8 = 2;
const TARGET_EXTERNAL_RECEIVER: u8 = 3;
const TARGET_ALL_AND_EXTERNAL_RECEIVER: u8 = 5;
const TARGET_MEMBER_AND_EXTERNAL_RECEIVER: u8 = 6;

impl Header {
    /// Length of the payload that follows this header.
    #[inline]
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        match &self.message {
            Message::Request(part)
            | Message::Result(part)
            | Message::Chunk(part)
            | Message::ChunkResult(part)
            | Message::LevelSum(part)
            | Message::Passed { part, .. } => part.payload_bytes(),
            Message::Contribution(contribution) => contribution.payload_bytes(),
            _ => 0,
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
        let version = Version::read(raw.version).ok_or(DecodeError::BadVersion(raw.version))?;
        let message = raw.message()?;
        let edge = Edge {
            group: GroupId(raw.group.get()),
            epoch: Epoch(raw.epoch.get()),
            child: ChildIndex(raw.child.get()),
            capability: Capability::from_bytes(raw.capability),
            version,
        };
        let header = Self { edge, message };
        let needed_bytes = header.payload_bytes() as u32;
        let announced_bytes = raw.payload_bytes.get();
        if announced_bytes != needed_bytes {
            return Err(DecodeError::WrongLength { announced_bytes, needed_bytes });
        }
        // Which fields must be zero differs from kind to kind. Encoding the message again and
        // comparing covers them all. Frames with a part are checked field by field instead, because
        // they are on the fast path.
        let has_part = matches!(
            message,
            Message::Request(_)
                | Message::Result(_)
                | Message::Chunk(_)
                | Message::ChunkResult(_)
                | Message::Contribution(_)
                | Message::LevelSum(_)
                | Message::Passed { .. }
        );
        if !has_part && header.encode()[..] != bytes[..HEADER_BYTES] {
            return Err(DecodeError::ReservedField);
        }
        Ok(header)
    }

    /// Lays the header out for the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = RawHeader::new_zeroed();
        raw.magic = MAGIC;
        raw.version = self.edge.version.0;
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
            Message::Abort(abort) => {
                raw.kind = KIND_ABORT;
                raw.reason = abort.reason as u8;
                raw.target_member = U32::new(abort.at_fault.0);
            }
            Message::Datagrams(port) => {
                raw.kind = KIND_DATAGRAMS;
                raw.detail = U16::new(port.map_or(0, core::num::NonZeroU16::get));
            }
            Message::Probe(attempt) => (raw.kind, raw.attempt) = (KIND_PROBE, attempt),
            Message::Probed(attempt) => (raw.kind, raw.attempt) = (KIND_PROBED, attempt),
            Message::Ack { sequence, attempt } => {
                raw.kind = KIND_ACK;
                raw.sequence = U32::new(sequence.0);
                raw.attempt = attempt;
            }
            Message::Nack { sequence } => {
                raw.kind = KIND_NACK;
                raw.sequence = U32::new(sequence.0);
            }
            Message::Subscribed(subscription) => {
                raw.kind = KIND_SUBSCRIBED;
                raw.detail = U16::new(subscription as u16);
            }
            Message::StreamRequest(request) => {
                raw.put_stream_request(KIND_STREAM_REQUEST, &request)
            }
            Message::StreamGrant(operation) => raw.put_operation(KIND_STREAM_GRANT, operation),
            Message::Chunk(part) => raw.put_part(KIND_CHUNK, &part),
            Message::ChunkResult(part) => raw.put_part(KIND_CHUNK_RESULT, &part),
            Message::StreamDone(operation) => raw.put_operation(KIND_STREAM_DONE, operation),
            Message::Waiting(Waiting { operation, called, digest }) => {
                raw.put_operation(KIND_WAITING, operation);
                raw.put_called(called);
                raw.target_member = U32::new(digest);
            }
            Message::Disagreement(Disagreement { members, called }) => {
                raw.kind = KIND_DISAGREEMENT;
                raw.segment = U32::new(called[0].to_codes());
                raw.sequence = U32::new(members[0].0);
                raw.put_called(called[1]);
                raw.target_member = U32::new(members[1].0);
            }
            Message::Contribution(Contribution { part, repeated_bytes }) => {
                raw.put_part(KIND_CONTRIBUTION, &part);
                raw.detail = U16::new(repeated_bytes);
            }
            Message::LevelSum(part) => raw.put_part(KIND_LEVEL_SUM, &part),
            Message::Passed { part, of } => {
                raw.put_part(KIND_PASSED, &part);
                raw.detail = U16::new(of.into());
            }
            Message::Ask(question) => raw.put_question(KIND_ASK, question),
            Message::NotYet(question) => raw.put_question(KIND_NOT_YET, question),
            Message::AskForSum { operation, level } => {
                raw.put_operation(KIND_ASK_FOR_SUM, operation);
                raw.sequence = U32::new(level);
            }
            Message::Departure { before, level } => {
                raw.put_operation(KIND_DEPARTURE, before);
                raw.sequence = U32::new(level);
            }
            Message::Farewell { level } => {
                raw.kind = KIND_FAREWELL;
                raw.sequence = U32::new(level);
            }
        }
        zerocopy::transmute!(raw)
    }
}

impl RawHeader {
    fn message(&self) -> Result<Message, DecodeError> {
        Ok(match self.kind {
            KIND_JOIN => Message::Join,
            KIND_JOINED => Message::Joined,
            KIND_REQUEST => Message::Request(self.request()?),
            KIND_RESULT => Message::Result(self.part()?),
            KIND_ABORT => {
                let reason = AbortReason::from_code(self.reason)
                    .ok_or(DecodeError::UnknownReason(self.reason))?;
                let at_fault = EndpointId(self.target_member.get());
                Message::Abort(Abort { reason, at_fault })
            }
            KIND_LEAVE => Message::Leave,
            KIND_DATAGRAMS => Message::Datagrams(self.detail.get().try_into().ok()),
            KIND_PROBE => Message::Probe(self.attempt),
            KIND_PROBED => Message::Probed(self.attempt),
            KIND_ACK => {
                Message::Ack { sequence: Sequence(self.sequence.get()), attempt: self.attempt }
            }
            KIND_NACK => Message::Nack { sequence: Sequence(self.sequence.get()) },
            KIND_SUBSCRIBED => {
                let code = self.detail.get();
                let subscription =
                    Subscription::ALL.into_iter().find(|subscription| *subscription as u16 == code);
                Message::Subscribed(subscription.ok_or(DecodeError::ReservedField)?)
            }
            KIND_STREAM_REQUEST => Message::StreamRequest(self.stream_request()?),
            KIND_STREAM_GRANT => Message::StreamGrant(self.operation_number()),
            KIND_CHUNK => Message::Chunk(self.request()?),
            KIND_CHUNK_RESULT => {
                let part = self.part()?;
                if part.retransmit.behind != 0 {
                    return Err(DecodeError::ReservedField);
                }
                Message::ChunkResult(part)
            }
            KIND_STREAM_DONE => Message::StreamDone(self.operation_number()),
            KIND_WAITING => Message::Waiting(Waiting {
                operation: self.operation_number(),
                called: decode_call([self.attempt, self.operator, self.datatype])?,
                digest: self.target_member.get(),
            }),
            KIND_DISAGREEMENT => Message::Disagreement(self.disagreement()?),
            KIND_CONTRIBUTION => {
                let (part, repeated_bytes) = self.part_and_detail()?;
                check_length(repeated_bytes)?;
                let contribution = Contribution { part, repeated_bytes };
                if contribution.payload_bytes() > PAYLOAD_BYTES_MAX {
                    return Err(RepeatedError::Length { bytes: repeated_bytes }.into());
                }
                Message::Contribution(contribution)
            }
            KIND_LEVEL_SUM => match self.part_and_detail()? {
                (part, 0) => Message::LevelSum(part),
                _ => return Err(DecodeError::ReservedField),
            },
            KIND_PASSED => {
                let (part, of) = self.part_and_detail()?;
                let of = u8::try_from(of).map_err(|_| DecodeError::ReservedField)?;
                Message::Passed { part, of }
            }
            KIND_ASK => Message::Ask(self.question()?),
            KIND_NOT_YET => Message::NotYet(self.question()?),
            KIND_ASK_FOR_SUM => Message::AskForSum {
                operation: self.operation_number(),
                level: self.sequence.get(),
            },
            KIND_DEPARTURE => {
                Message::Departure { before: self.operation_number(), level: self.sequence.get() }
            }
            KIND_FAREWELL => Message::Farewell { level: self.sequence.get() },
            other => return Err(DecodeError::UnknownKind(other)),
        })
    }

    fn request(&self) -> Result<Part, DecodeError> {
        let part = self.part()?;
        // A contributor without data would silently drop out of a reduction.
        if part.shape.operator().is_reduction() && !part.has_data {
            return Err(DecodeError::DataMismatch);
        }
        if part.retransmit.behind != 0 {
            return Err(DecodeError::ReservedField);
        }
        Ok(part)
    }

    /// A part that has data if its operation reduces some, and what else the detail says.
    fn part_and_detail(&self) -> Result<(Part, u16), DecodeError> {
        let mut part = self.part()?;
        if part.shape.operator().is_reduction() && !part.has_data {
            return Err(DecodeError::DataMismatch);
        }
        let detail = core::mem::take(&mut part.retransmit.behind);
        Ok((part, detail))
    }

    fn question(&self) -> Result<Question, DecodeError> {
        let of = u8::try_from(self.detail.get()).map_err(|_| DecodeError::ReservedField)?;
        Ok(Question {
            operation: self.operation_number(),
            level: self.sequence.get(),
            of: of.checked_sub(1),
        })
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
            operation: self.operation_number(),
            segment: SegmentIndex(self.segment.get()),
            sequence: Sequence(self.sequence.get()),
            shape,
            target,
            has_data,
            retransmit: RetransmitState { attempt: self.attempt, behind: self.detail.get() },
        })
    }

    fn target(&self) -> Result<Target, DecodeError> {
        match (self.target_kind, self.target_member.get()) {
            (TARGET_ALL, 0) => Ok(Target::All),
            (TARGET_EXTERNAL_RECEIVER, 0) => Ok(Target::ExternalReceiver),
            (TARGET_ALL_AND_EXTERNAL_RECEIVER, 0) => Ok(Target::AllAndExternalReceiver),
            (TARGET_ALL | TARGET_EXTERNAL_RECEIVER | TARGET_ALL_AND_EXTERNAL_RECEIVER, _) => {
                Err(DecodeError::ReservedField)
            }
            (TARGET_MEMBER, member) => Ok(Target::Member(EndpointId(member))),
            (TARGET_MEMBER_AND_EXTERNAL_RECEIVER, member) => {
                Ok(Target::MemberAndExternalReceiver(EndpointId(member)))
            }
            (other, _) => Err(DecodeError::UnknownTarget(other)),
        }
    }

    fn operation_number(&self) -> OperationNumber {
        OperationNumber(self.operation.get())
    }

    fn stream_request(&self) -> Result<StreamRequest, DecodeError> {
        let operator = Operator::from_code(self.operator)?;
        let datatype = Datatype::from_code(self.datatype)?;
        let shape = StreamShape::new(operator, datatype, u64::from(self.elements.get()))?;
        let target = self.target()?;
        if !target.takes_streams() {
            return Err(DecodeError::StreamTarget(self.target_kind));
        }
        Ok(StreamRequest { operation: self.operation_number(), shape, target })
    }

    fn put_operation(&mut self, kind: u8, operation: OperationNumber) {
        self.kind = kind;
        self.operation = U32::new(operation.0);
    }

    fn put_question(&mut self, kind: u8, question: Question) {
        self.put_operation(kind, question.operation);
        self.sequence = U32::new(question.level);
        self.detail = U16::new(question.of.map_or(0, |of| u16::from(of) + 1));
    }

    fn disagreement(&self) -> Result<Disagreement, DecodeError> {
        let [collective, operator, datatype, _] = self.segment.get().to_le_bytes();
        let codes =
            [[collective, operator, datatype], [self.attempt, self.operator, self.datatype]];
        let members = [self.sequence.get(), self.target_member.get()].map(EndpointId);
        Ok(Disagreement { members, called: [decode_call(codes[0])?, decode_call(codes[1])?] })
    }

    fn put_called(&mut self, called: Called) {
        self.attempt = called.collective;
        self.operator = called.operator.code();
        self.datatype = called.datatype.code();
    }

    fn put_stream_request(&mut self, kind: u8, request: &StreamRequest) {
        self.put_operation(kind, request.operation);
        self.elements = U32::new(request.shape.elements());
        self.datatype = request.shape.datatype().code();
        self.operator = request.shape.operator().code();
        self.put_target(request.target);
    }

    fn put_part(&mut self, kind: u8, part: &Part) {
        self.kind = kind;
        self.has_data = u8::from(part.has_data);
        self.operation = U32::new(part.operation.0);
        self.segment = U32::new(part.segment.0);
        self.sequence = U32::new(part.sequence.0);
        self.elements = U32::new(part.shape.elements());
        self.datatype = part.shape.datatype().code();
        self.operator = part.shape.operator().code();
        self.attempt = part.retransmit.attempt;
        self.detail = U16::new(part.retransmit.behind);
        self.put_target(part.target);
    }

    fn put_target(&mut self, target: Target) {
        let (target_kind, target_member) = match target {
            Target::All => (TARGET_ALL, 0),
            Target::Member(EndpointId(member)) => (TARGET_MEMBER, member),
            Target::ExternalReceiver => (TARGET_EXTERNAL_RECEIVER, 0),
            Target::AllAndExternalReceiver => (TARGET_ALL_AND_EXTERNAL_RECEIVER, 0),
            Target::MemberAndExternalReceiver(EndpointId(member)) => {
                (TARGET_MEMBER_AND_EXTERNAL_RECEIVER, member)
            }
        };
        debug_assert_ne!(target_kind, TARGET_NONE);
        self.target_kind = target_kind;
        self.target_member = U32::new(target_member);
    }
}

fn decode_call([collective, operator, datatype]: [u8; 3]) -> Result<Called, DecodeError> {
    let (operator, datatype) = (Operator::from_code(operator)?, Datatype::from_code(datatype)?);
    Ok(Called { collective, operator, datatype })
}
