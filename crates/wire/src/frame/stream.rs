//! Stream requests, and the shape of a streamed vector.

use super::shape::impl_elements;
use super::target::Target;
use crate::{Datatype, OperationNumber, Operator};

/// Longest vector of one stream: 2 GiB. A longer one is several streams.
pub const STREAM_BYTES_MAX: u64 = 1 << 31;

/// A request to stream a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// The operation that streams.
    pub operation: OperationNumber,
    /// The whole vector.
    pub shape: StreamShape,
    /// Where its result goes.
    pub target: Target,
}

/// What a streamed vector's elements are and how they combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamShape {
    operator: Operator,
    datatype: Datatype,
    elements: u32,
}

/// Why an operator, a datatype and a count make no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamShapeError {
    /// The operator carries no data, or is not defined on the datatype.
    #[error("{} of {} can't be streamed", operator.name(), datatype.name())]
    NotDefined {
        /// The operator asked for.
        operator: Operator,
        /// The datatype it was asked for on.
        datatype: Datatype,
    },
    /// Nothing to stream, or more than 2 GiB.
    #[error("a stream has from 1 to {STREAM_BYTES_MAX} bytes, not {bytes}")]
    Length {
        /// The length asked for.
        bytes: u64,
    },
}

impl StreamShape {
    /// A vector of `elements` elements.
    ///
    /// # Errors
    /// If the operator isn't defined on the datatype or carries no data, or the length is zero or
    /// more than [`STREAM_BYTES_MAX`].
    pub fn new(
        operator: Operator,
        datatype: Datatype,
        elements: u64,
    ) -> Result<Self, StreamShapeError> {
        if operator == Operator::Barrier || !operator.applies_to(datatype) {
            return Err(StreamShapeError::NotDefined { operator, datatype });
        }
        let bytes = elements.saturating_mul(datatype.size_bytes() as u64);
        match u32::try_from(elements) {
            Ok(elements) if (1..=STREAM_BYTES_MAX).contains(&bytes) => {
                Ok(Self { operator, datatype, elements })
            }
            _ => Err(StreamShapeError::Length { bytes }),
        }
    }
}

impl_elements!(StreamShape);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_bounded_and_carries_data() {
        let length = |elements| StreamShape::new(Operator::Sum, Datatype::F64, elements);
        assert!(length(1).is_ok());
        assert!(length(STREAM_BYTES_MAX / 8).is_ok());
        for elements in [0, STREAM_BYTES_MAX / 8 + 1, u64::MAX] {
            assert!(matches!(length(elements), Err(StreamShapeError::Length { .. })));
        }
        assert!(StreamShape::new(Operator::Max, Datatype::U8, STREAM_BYTES_MAX).is_ok());
        assert!(StreamShape::new(Operator::Barrier, Datatype::U8, 0).is_err());
        assert!(StreamShape::new(Operator::MinLoc, Datatype::F32, 1).is_err());
    }
}
