//! What a sum is besides its integer: empty, a zero with a sign, infinite, or not a number.

/// The kind of a sum. The kinds form a lattice: contributions and merges only join, so no order can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Nothing was added.
    Empty = 0,
    /// Every contribution is -0.
    NegativeZero = 1,
    /// A finite sum; +0 if its integer is zero.
    Finite = 2,
    /// +infinity was added, and no -infinity.
    PositiveInfinity = 3,
    /// -infinity was added, and no +infinity.
    NegativeInfinity = 4,
    /// A NaN was added, or infinities of both signs.
    Nan = 5,
}

impl Class {
    /// All classes, by number.
    pub const ALL: [Self; 6] = [
        Self::Empty,
        Self::NegativeZero,
        Self::Finite,
        Self::PositiveInfinity,
        Self::NegativeInfinity,
        Self::Nan,
    ];

    /// The class of a sum of sums of these classes.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        if self.is_infinite() && other.is_infinite() && self != other {
            Self::Nan
        } else {
            self.max(other)
        }
    }

    /// Whether the integer still counts.
    #[inline]
    #[must_use]
    pub fn is_finite(self) -> bool {
        self <= Self::Finite
    }

    fn is_infinite(self) -> bool {
        matches!(self, Self::PositiveInfinity | Self::NegativeInfinity)
    }
}
