//! What an aggregation node does with its children's elements.

use crate::Datatype;

/// Operation on vectors, as the frame header names it.
///
/// The reductions are those of MPI 4.1 §6.9.2 and §6.9.4. In a barrier or broadcast at most one
/// child brings data, so aggregators handle them on the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "control", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "control", serde(rename_all = "kebab-case"))]
#[repr(u8)]
pub enum Operator {
    /// Addition; integers wrap.
    Sum = 1,
    /// Multiplication; integers wrap.
    Product = 2,
    /// Smaller value.
    Min = 3,
    /// Larger value.
    Max = 4,
    /// Smaller value and its index; on equal values the smaller index.
    MinLoc = 5,
    /// Larger value and its index; on equal values the smaller index.
    MaxLoc = 6,
    /// Bitwise and.
    BitAnd = 7,
    /// Bitwise or.
    BitOr = 8,
    /// Bitwise exclusive or.
    BitXor = 9,
    /// Logical and: 1 where both are nonzero, else 0.
    LogicalAnd = 10,
    /// Logical or: 1 where either is nonzero, else 0.
    LogicalOr = 11,
    /// Logical exclusive or: 1 where exactly one is nonzero, else 0.
    LogicalXor = 12,
    /// No data: completes once every member has started it.
    Barrier = 13,
    /// One member's vector, unchanged.
    Broadcast = 14,
}

/// An operator code no version of this protocol defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operator code {0} is not defined")]
pub struct UnknownOperator(pub u8);

impl Operator {
    /// Every operator, in code order.
    pub const ALL: [Self; 14] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::MinLoc,
        Self::MaxLoc,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::Barrier,
        Self::Broadcast,
    ];

    /// The code in the frame header.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The operator a frame header names.
    ///
    /// # Errors
    /// If no operator has that code.
    pub const fn from_code(code: u8) -> Result<Self, UnknownOperator> {
        if code == 0 || code as usize > Self::ALL.len() {
            return Err(UnknownOperator(code));
        }
        Ok(Self::ALL[code as usize - 1])
    }

    /// Name used in options and tables: `sum`, `bit-and`, `minloc`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::MinLoc => "minloc",
            Self::MaxLoc => "maxloc",
            Self::BitAnd => "bit-and",
            Self::BitOr => "bit-or",
            Self::BitXor => "bit-xor",
            Self::LogicalAnd => "logical-and",
            Self::LogicalOr => "logical-or",
            Self::LogicalXor => "logical-xor",
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
        }
    }

    /// Whether the operator combines two elements into one.
    #[must_use]
    pub const fn is_reduction(self) -> bool {
        !matches!(self, Self::Barrier | Self::Broadcast)
    }

    /// Whether the operator is defined on `datatype`, by MPI 4.1 §6.9.2 and §6.9.4.
    ///
    /// Bitwise and logical operators take integers; minloc and maxloc take pairs; sum and product take
    /// every number, min and max every number that is not complex. A broadcast moves any element; a
    /// barrier carries none and takes no datatype.
    #[must_use]
    pub const fn applies_to(self, datatype: Datatype) -> bool {
        match self {
            Self::Sum | Self::Product => !datatype.is_pair(),
            Self::Min | Self::Max => !datatype.is_pair() && !datatype.is_complex(),
            Self::MinLoc | Self::MaxLoc => datatype.is_pair(),
            Self::BitAnd
            | Self::BitOr
            | Self::BitXor
            | Self::LogicalAnd
            | Self::LogicalOr
            | Self::LogicalXor => datatype.is_integer(),
            Self::Broadcast => true,
            Self::Barrier => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_others_are_refused() {
        for operator in Operator::ALL {
            assert_eq!(Operator::from_code(operator.code()), Ok(operator));
        }
        for code in (0..=255).filter(|code| !(1..=14).contains(code)) {
            assert_eq!(Operator::from_code(code), Err(UnknownOperator(code)));
        }
    }
}
