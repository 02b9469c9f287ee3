//! How a streamed vector is cut into chunks. Both ends of a stream agree on it.

use tributary_wire::frame::{Part, RetransmitState, Shape, StreamRequest};
use tributary_wire::{SegmentIndex, Sequence, StreamTerms};

/// A vector cut into chunks of equal length but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    request: StreamRequest,
    elements_per_chunk: u32,
    chunks: u32,
}

impl Cut {
    /// None if a single element is longer than a chunk.
    pub(crate) fn new(request: StreamRequest, terms: &StreamTerms) -> Option<Self> {
        let elements_per_chunk = terms.chunk_bytes / request.shape.datatype().size_bytes() as u32;
        if elements_per_chunk == 0 {
            return None;
        }
        let chunks = request.shape.elements().div_ceil(elements_per_chunk);
        Some(Self { request, elements_per_chunk, chunks })
    }

    pub(crate) fn request(&self) -> &StreamRequest {
        &self.request
    }

    /// How many chunks there are.
    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }

    fn elements_of(&self, chunk: u32) -> u32 {
        let first = u64::from(chunk) * u64::from(self.elements_per_chunk);
        let left = u64::from(self.request.shape.elements()).saturating_sub(first);
        left.min(u64::from(self.elements_per_chunk)) as u32
    }

    /// The chunk with this index, as it travels; none beyond the last.
    pub(crate) fn part(&self, chunk: u32, has_data: bool) -> Option<Part> {
        let segment = SegmentIndex(self.chunks.checked_sub(chunk)?.checked_sub(1)?);
        let whole = &self.request.shape;
        let shape = Shape::new(whole.operator(), whole.datatype(), self.elements_of(chunk)).ok()?;
        Some(Part {
            operation: self.request.operation,
            segment,
            sequence: Sequence(Sequence::FIRST.0.wrapping_add(chunk)),
            shape,
            target: self.request.target,
            has_data,
            retransmit: RetransmitState::default(),
        })
    }

    /// Whether a part is one of this vector's chunks.
    pub(crate) fn has(&self, part: &Part) -> bool {
        let ours = self.part(chunk_of(part), part.has_data);
        ours.is_some_and(|ours| ours.is_same_segment(part))
    }
}

/// The index of a chunk in its stream.
pub(crate) fn chunk_of(part: &Part) -> u32 {
    part.sequence.distance_from(Sequence::FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_wire::frame::{STREAM_BYTES_MAX, StreamShape, Target};
    use tributary_wire::{Datatype, OperationNumber, Operator};

    fn cut(datatype: Datatype, elements: u64, chunk_bytes: u32) -> Option<Cut> {
        let shape = StreamShape::new(Operator::Sum, datatype, elements).unwrap();
        let request = StreamRequest { operation: OperationNumber(7), shape, target: Target::All };
        Cut::new(request, &StreamTerms { chunk_bytes, window: 4 })
    }

    #[test]
    fn chunks_cover_the_vector_in_order() {
        for (elements, chunk_bytes) in [(1, 8), (7, 20), (100, 16), (1000, 799)] {
            let cut = cut(Datatype::F64, elements, chunk_bytes).unwrap();
            let mut end = 0;
            for chunk in 0..cut.chunks() {
                let part = cut.part(chunk, true).unwrap();
                assert!(cut.has(&part) && part.shape.bytes() <= chunk_bytes as usize);
                end += part.shape.bytes();
            }
            assert_eq!(end, 8 * elements as usize);
            assert_eq!(cut.part(cut.chunks(), true), None);
        }
        assert_eq!(cut(Datatype::F64, 3, 7), None, "no element fits");
    }

    #[test]
    fn the_longest_stream_has_places_for_all_its_bytes() {
        let cut = cut(Datatype::U8, STREAM_BYTES_MAX, 16).unwrap();
        assert_eq!(cut.chunks(), 1 << 27);
        assert_eq!(cut.part(cut.chunks() - 1, true).unwrap().shape.bytes(), 16);
    }

    #[test]
    fn what_is_no_chunk_of_the_vector_is_told() {
        let cut = cut(Datatype::F64, 100, 16).unwrap();
        let part = cut.part(9, true).unwrap();
        for other in [
            Part { segment: SegmentIndex(50), ..part },
            Part { sequence: part.sequence.next(), ..part },
            Part { shape: Shape::new(Operator::Sum, Datatype::F64, 1).unwrap(), ..part },
            Part { operation: OperationNumber(8), ..part },
        ] {
            assert!(!cut.has(&other), "{other:?}");
        }
    }
}
