//! What one segment's elements are and how they combine.

use crate::{Datatype, Operator};

/// Longest payload that a frame may announce. Every receiver can hold this much.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

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

    /// The same with so many elements, of which a reduction or broadcast has at least one, and no shape more than this.
    #[inline]
    #[must_use]
    pub fn shortened_to(self, elements: u32) -> Self {
        debug_assert!(elements <= self.elements && (elements > 0 || self == Self::BARRIER));
        Self { elements, ..self }
    }

    /// Length of the elements.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.elements as usize * self.datatype.size_bytes()
    }
}

/// What a whole vector and a segment of it say alike of their elements.
macro_rules! impl_elements {
    ($described:ty) => {
        impl $described {
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
        }
    };
}
pub(super) use impl_elements;

impl_elements!(Shape);
