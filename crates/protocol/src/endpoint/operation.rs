//! One operation at one member.

use core::ops::Range;

use tributary_wire::frame::{
    Part, RetransmitState, Shape, ShapeError, StreamRequest, StreamShape, StreamShapeError, Target,
};
use tributary_wire::{Datatype, OperationNumber, Operator, SegmentIndex, Sequence};

use crate::StreamTerms;
use crate::failover::Cut;

/// An operation, as its member starts it. All members name the same one, except for which of them
/// bring and take data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSpec {
    /// How elements combine; [`Operator::Barrier`] takes none.
    pub operator: Operator,
    /// What an element is.
    pub datatype: Datatype,
    /// How many elements.
    pub elements: u64,
    /// Where the result goes.
    pub target: Target,
    /// Whether this member brings data: always in a reduction, at one member in a broadcast.
    pub contributes: bool,
    /// Whether this member takes the result.
    pub receives: bool,
    /// What else members must name alike, as a digest; 0 if there is nothing. Else the number of elements is part of it, too:
    /// what a member puts above the number of a segment of a short vector may be that of a longer one's. Segments travel with
    /// it, chunks of streams do not.
    pub digest: u32,
}

impl OperationSpec {
    /// The operation that carries no data and completes once every member has started it.
    pub const BARRIER: Self = Self {
        operator: Operator::Barrier,
        datatype: Datatype::U8,
        elements: 0,
        target: Target::All,
        contributes: false,
        receives: false,
        digest: 0,
    };
}

/// Vectors that are cut into shorter segments than the grant allows.
///
/// A segment that fits one packet can go by datagram, and its result by multicast to all members at
/// once. For a vector of a few packets that outweighs the cost of more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortVectors {
    /// The longest such vector.
    pub vector_max_bytes: u64,
    /// Whether vectors are cut so that need more segments than may be in flight.
    pub may_exceed_window: bool,
    /// How long their segments are, at most.
    pub segment_max_bytes: u32,
}

impl ShortVectors {
    /// Whether an operation's vector is one of them, where `osos` segments may be in flight.
    pub(super) fn include(&self, spec: &OperationSpec, osos: u16) -> bool {
        let len_bytes = spec.elements.saturating_mul(spec.datatype.size_bytes() as u64);
        let in_flight_bytes = u64::from(self.segment_max_bytes) * u64::from(osos);
        len_bytes <= self.vector_max_bytes
            && (self.may_exceed_window || len_bytes <= in_flight_bytes)
    }
}

/// Why a specification is invalid. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Operator, datatype and count do not fit together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Operator, datatype and count are not a valid stream.
    #[error(transparent)]
    StreamShape(#[from] StreamShapeError),
    /// The group was granted no streams.
    #[error("the group was granted no streams")]
    NoStreams,
    /// A stream whose result goes to an external receiver, which no aggregator takes.
    #[error("a stream's result can't go to an external receiver")]
    StreamToExternalReceiver,
    /// A member of a reduction that brings nothing.
    #[error("every member of a reduction contributes")]
    NotContributing,
    /// More segments than a segment number can count.
    #[error("a vector of {elements} elements needs more than 2^32 segments")]
    TooManySegments {
        /// Asked for.
        elements: u64,
    },
    /// One element is longer than the group's segments.
    #[error("an element of {element_bytes} bytes exceeds the group's segments of {max_bytes}")]
    ElementTooLong {
        /// Its size.
        element_bytes: usize,
        /// The grant.
        max_bytes: u32,
    },
}

/// An operation under way. Its vector is cut into segments of equal length but the last.
#[derive(Debug)]
pub(super) struct Operation {
    number: OperationNumber,
    spec: OperationSpec,
    elements_per_segment: u32,
    segments: u32,
    /// Of its segments, but for the last, which may be shorter.
    shape: Shape,
    /// Bits of the digest in the numbers of its segments, above those that count segments.
    tag: u32,
    sent: u32,
    completed: u32,
    /// The whole vector, if it goes as a stream.
    stream: Option<StreamShape>,
    /// Bytes of the vector that may be sent by now.
    ready_bytes: usize,
    /// Whether the driver was told that it is complete.
    is_told: bool,
}

impl Operation {
    /// Length of its segments, but for the last, which may be shorter.
    pub(super) fn segment_bytes(&self) -> usize {
        let elements = self.spec.elements.min(u64::from(self.elements_per_segment));
        elements as usize * self.spec.datatype.size_bytes()
    }

    /// Whether every member gets its result.
    pub(super) fn is_for_all(&self) -> bool {
        self.spec.target.is_all()
    }

    pub(super) fn new(
        number: OperationNumber,
        spec: OperationSpec,
        payload_max_bytes: u32,
    ) -> Result<Self, SpecError> {
        let element_bytes = spec.datatype.size_bytes();
        let elements_per_segment = payload_max_bytes / element_bytes as u32;
        if elements_per_segment == 0 {
            return Err(SpecError::ElementTooLong { element_bytes, max_bytes: payload_max_bytes });
        }
        if spec.operator.is_reduction() && !spec.contributes {
            return Err(SpecError::NotContributing);
        }
        // Checks that the three fit together; then every segment's shape is valid too.
        let first = spec.elements.min(u64::from(elements_per_segment)) as u32;
        let shape = Shape::new(spec.operator, spec.datatype, first)?;
        let segments = spec.elements.div_ceil(u64::from(elements_per_segment)).max(1);
        let segments = u32::try_from(segments)
            .map_err(|_| SpecError::TooManySegments { elements: spec.elements })?;
        Ok(Self {
            number,
            spec,
            elements_per_segment,
            segments,
            shape,
            tag: tag(spec.digest, segments),
            sent: 0,
            completed: 0,
            stream: None,
            ready_bytes: usize::MAX,
            is_told: false,
        })
    }

    /// An operation whose vector goes as a stream. Its first `ready_bytes` may be sent.
    pub(super) fn new_stream(
        number: OperationNumber,
        spec: OperationSpec,
        terms: &StreamTerms,
        ready_bytes: usize,
    ) -> Result<Self, SpecError> {
        if !spec.target.takes_streams() {
            return Err(SpecError::StreamToExternalReceiver);
        }
        let stream = Some(StreamShape::new(spec.operator, spec.datatype, spec.elements)?);
        let operation = Self::new(number, spec, terms.chunk_bytes)?;
        // Aggregators know from its request how each chunk is numbered.
        Ok(Self { stream, ready_bytes, tag: 0, ..operation })
    }

    pub(super) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    pub(super) fn stream_request(&self) -> Option<StreamRequest> {
        let shape = self.stream?;
        Some(StreamRequest { operation: self.number, shape, target: self.spec.target })
    }

    /// Whether the next segment's bytes may be sent. A member that brings no data need not wait.
    pub(super) fn is_next_ready(&self) -> bool {
        !self.spec.contributes || self.bytes_behind(self.sent).end <= self.ready_bytes
    }

    pub(super) fn set_ready(&mut self, ready_bytes: usize) {
        debug_assert!(self.ready_bytes <= ready_bytes, "what is ready stays so");
        self.ready_bytes = ready_bytes;
    }

    pub(super) fn number(&self) -> OperationNumber {
        self.number
    }

    pub(super) fn receives(&self) -> bool {
        self.spec.receives
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.segments
    }

    pub(super) fn is_complete(&self) -> bool {
        self.completed == self.segments
    }

    /// Notes that the driver was told of its completion. True the first time.
    pub(super) fn is_told_first(&mut self) -> bool {
        !core::mem::replace(&mut self.is_told, true)
    }

    /// The next segment to send, and its bytes in the vector.
    pub(super) fn next_part(&self, sequence: Sequence) -> (Part, Range<usize>) {
        let segment = SegmentIndex((self.segments - 1 - self.sent) | self.tag);
        let elements = self.elements_behind(self.sent);
        let shape = self.shape.shortened_to((elements.end - elements.start) as u32);
        let part = Part {
            operation: self.number,
            segment,
            sequence,
            shape,
            target: self.spec.target,
            has_data: self.spec.contributes && self.spec.operator != Operator::Barrier,
            retransmit: RetransmitState::default(),
        };
        (part, self.bytes_behind(self.sent))
    }

    /// A segment's bytes in the vector. Segments are numbered downward to 0, below the tag.
    pub(super) fn bytes_of(&self, segment: SegmentIndex) -> Range<usize> {
        self.bytes_behind(self.segments - 1 - (segment.0 ^ self.tag))
    }

    /// The bytes of the segment behind so many.
    fn bytes_behind(&self, segments: u32) -> Range<usize> {
        let elements = self.elements_behind(segments);
        let element_bytes = self.spec.datatype.size_bytes();
        elements.start as usize * element_bytes..elements.end as usize * element_bytes
    }

    /// Its elements.
    fn elements_behind(&self, segments: u32) -> Range<u64> {
        let first = u64::from(segments) * u64::from(self.elements_per_segment);
        let end = (first + u64::from(self.elements_per_segment)).min(self.spec.elements);
        first..end
    }

    /// Segments sent so far, all before those unsent.
    pub(super) fn sent_segments(&self) -> u32 {
        self.sent
    }

    /// How its vector is cut, where so many segments may be in flight.
    pub(super) fn cut(&self, window: u16) -> Cut {
        Cut {
            segment_bytes: self.elements_per_segment as usize * self.spec.datatype.size_bytes(),
            segments: self.segments,
            len_bytes: self.len_bytes(),
            window,
        }
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.spec.elements as usize * self.spec.datatype.size_bytes()
    }

    /// Bytes of the first so many segments.
    pub(super) fn bytes_before(&self, segments: u32) -> usize {
        self.bytes_behind(segments).start.min(self.len_bytes())
    }

    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn on_result(&mut self) {
        self.completed += 1;
    }
}

/// The part of a digest that fits above the numbers of so many segments.
fn tag(digest: u32, segments: u32) -> u32 {
    let counting_bits = u32::BITS - (segments - 1).leading_zeros();
    digest & u32::MAX.checked_shl(counting_bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_leaves_the_numbers_of_segments_alone() {
        let digest = 0xdead_beef;
        assert_eq!(tag(digest, 1), digest);
        assert_eq!(tag(digest, 2), digest & !1);
        assert_eq!(tag(digest, 257), digest & !0x1ff);
        assert_eq!(tag(digest, u32::MAX), 0);
        for elements in [1, 4, 5, 1000] {
            let spec = OperationSpec {
                operator: Operator::Sum,
                datatype: Datatype::U64,
                elements,
                target: Target::All,
                contributes: true,
                receives: true,
                digest,
            };
            let mut operation = Operation::new(OperationNumber::FIRST, spec, 32).unwrap();
            let mut end = 0;
            while operation.has_unsent() {
                let (part, bytes) = operation.next_part(Sequence::FIRST);
                assert_eq!(operation.bytes_of(part.segment), bytes);
                assert_eq!(bytes.start, end);
                end = bytes.end;
                operation.on_sent();
            }
            assert_eq!(end, 8 * elements as usize);
        }
    }
}
