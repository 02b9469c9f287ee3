//! The formats that are summed: the layout of their bits, and how wide their accumulators are.

use half::{bf16, f16};

use crate::class::Class;

mod sealed {
    pub trait Sealed {}
}

/// An IEEE format whose values can be added.
pub trait Element: Format + sealed::Sealed + PartialEq {
    /// Bits of the significand, the implicit one included.
    const PRECISION: u32;
    /// Bits of the exponent field.
    const EXPONENT_BITS: u32;
    /// The exponent of two of the smallest subnormal.
    const SMALLEST: i32 = 3 - (1 << (Self::EXPONENT_BITS - 1)) - Self::PRECISION as i32;
    /// The value's bits.
    fn to_bits_u64(self) -> u64;
    /// The value with these bits.
    fn from_bits_u64(bits: u64) -> Self;
}

/// What an accumulator sums: values of an [`Element`], or [`Products`] of two.
///
/// The accumulator is a two's-complement integer in units of `2^UNIT`, of at most `WORDS` words of 64 bits.
pub trait Format: Copy + core::fmt::Debug + 'static {
    /// What a sum is rounded to.
    type Rounded: Element;
    /// The words of a window of full width.
    type Words: AsRef<[u64]> + AsMut<[u64]> + Copy + core::fmt::Debug;
    /// The chunks of an accumulator, 32 bits each.
    type Chunks: AsRef<[i64]> + AsMut<[i64]> + Copy + core::fmt::Debug;
    /// Number on the wire.
    const CODE: u8;
    /// Words of full width.
    const WORDS: usize;
    /// The exponent of two of the integer's lowest bit.
    const UNIT: i32;
    /// All words zero.
    const ZERO_WORDS: Self::Words;
    /// All chunks zero.
    const ZERO_CHUNKS: Self::Chunks;
}

/// Products of two elements, exact.
#[derive(Clone, Copy, Debug)]
pub struct Products<E>(core::marker::PhantomData<E>);

/// A finite value as an integer times a power of two, with the class that it contributes.
pub(crate) struct Parts {
    pub(crate) class: Class,
    pub(crate) is_negative: bool,
    pub(crate) significand: u64,
    /// Of the significand's lowest bit, in units of the smallest subnormal.
    pub(crate) position: u32,
}

pub(crate) fn split<E: Element>(value: E) -> Parts {
    let bits = value.to_bits_u64();
    let fraction_bits = E::PRECISION - 1;
    let fraction = bits & ((1 << fraction_bits) - 1);
    let field_max = (1_u64 << E::EXPONENT_BITS) - 1;
    let field = (bits >> fraction_bits) & field_max;
    let is_negative = bits >> (fraction_bits + E::EXPONENT_BITS) == 1;
    let class = if field == field_max {
        match (fraction, is_negative) {
            (0, false) => Class::PositiveInfinity,
            (0, true) => Class::NegativeInfinity,
            _ => Class::Nan,
        }
    } else if is_negative && bits << (64 - fraction_bits - E::EXPONENT_BITS) == 0 {
        Class::NegativeZero
    } else {
        Class::Finite
    };
    let significand = fraction | (u64::from(field != 0) << fraction_bits);
    Parts { class, is_negative, significand, position: (field.max(1) - 1) as u32 }
}

/// One above the highest bit of the largest value, in units of the smallest subnormal.
pub(crate) const fn bits_above_unit<E: Element>() -> u32 {
    (1 << E::EXPONENT_BITS) - 3 + E::PRECISION
}

macro_rules! format {
    ($type:ty, $rounded:ty, $code:literal, $words:literal, $unit:expr) => {
        impl Format for $type {
            type Rounded = $rounded;
            type Words = [u64; $words];
            type Chunks = [i64; 2 * $words];
            const CODE: u8 = $code;
            const WORDS: usize = $words;
            const UNIT: i32 = $unit;
            const ZERO_WORDS: Self::Words = [0; $words];
            const ZERO_CHUNKS: Self::Chunks = [0; 2 * $words];
        }
    };
}

macro_rules! element {
    ($type:ty, $bits:ty, $precision:literal, $exponent_bits:literal) => {
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const PRECISION: u32 = $precision;
            const EXPONENT_BITS: u32 = $exponent_bits;

            #[inline]
            fn to_bits_u64(self) -> u64 {
                u64::from(self.to_bits())
            }

            #[inline]
            fn from_bits_u64(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
        }
    };
}

element!(f16, u16, 11, 5);
element!(bf16, u16, 8, 8);
element!(f32, u32, 24, 8);
element!(f64, u64, 53, 11);
format!(f16, f16, 1, 2, <f16 as Element>::SMALLEST);
format!(bf16, bf16, 2, 6, <bf16 as Element>::SMALLEST);
format!(f32, f32, 3, 6, <f32 as Element>::SMALLEST);
format!(f64, f64, 4, 34, <f64 as Element>::SMALLEST);
format!(Products<f32>, f32, 5, 10, 2 * <f32 as Element>::SMALLEST);
format!(Products<f64>, f64, 6, 67, 2 * <f64 as Element>::SMALLEST);
