//! The exponents that the values of a vector use: what ranks agree on before they lay out lanes.

use crate::class::Class;
use crate::format::{Element, Parts, bits_above_unit, split};
use crate::isa::{Isa, Loop, VECTOR_VALUES_MIN};

/// One above the highest bit of any format, in units of its smallest subnormal.
const END: u32 = bits_above_unit::<f64>();

/// The bits that the values of a vector use, and whether some values are no finite numbers, or -0.
///
/// Bits are counted from the format's smallest subnormal on. A value uses the bits of its whole significand, so that its
/// exponent alone decides; a zero uses none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The lowest bit; that of [`Span::EMPTY`] is above all others.
    pub(crate) lowest: u32,
    /// One above the highest bit.
    pub(crate) end: u32,
    has_non_finite: bool,
    has_negative_zero: bool,
}

impl Span {
    /// The span of no values, and of values that are all +0.
    pub const EMPTY: Self =
        Self { lowest: u32::MAX, end: 0, has_non_finite: false, has_negative_zero: false };

    /// The span of these values.
    #[inline]
    #[must_use]
    pub fn of<E: Element>(values: &[E]) -> Self {
        if values.len() >= VECTOR_VALUES_MIN {
            return Self::of_with(Isa::best(), values);
        }
        values.iter().fold(Self::EMPTY, |span, value| span.join(Self::of_value(*value)))
    }

    #[inline]
    fn of_value<E: Element>(value: E) -> Self {
        let Parts { class, significand, position, .. } = split(value);
        let has_non_finite = !class.is_finite() && class != Class::NegativeZero;
        let has_negative_zero = class == Class::NegativeZero;
        if has_non_finite || significand == 0 {
            return Self { has_non_finite, has_negative_zero, ..Self::EMPTY };
        }
        Self { lowest: position, end: position + E::PRECISION, ..Self::EMPTY }
    }

    #[inline]
    pub(crate) fn of_with<E: Element>(isa: Isa, values: &[E]) -> Self {
        let all = isa.run(Scan::<E, false> { values });
        if all.largest < infinity::<E>() {
            return all.to_span::<E>(false);
        }
        // Values that are not finite hide the largest one that is.
        isa.run(Scan::<E, true> { values }).to_span::<E>(true)
    }

    /// The span of the values of both.
    #[inline]
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            lowest: self.lowest.min(other.lowest),
            end: self.end.max(other.end),
            has_non_finite: self.has_non_finite | other.has_non_finite,
            has_negative_zero: self.has_negative_zero | other.has_negative_zero,
        }
    }

    /// The span with `bits` more at each end, as far as the format has them: exponents that the next values may use.
    #[must_use]
    pub fn widen<E: Element>(self, bits: u32) -> Self {
        if self.end == 0 {
            return self;
        }
        let end = self.end.saturating_add(bits).min(bits_above_unit::<E>());
        Self { lowest: self.lowest.saturating_sub(bits), end, ..self }
    }

    /// Whether a vector of this span may have every value that one of the other span may have.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.join(other) == self
    }

    /// Whether the span has infinities, NaNs or -0: values that an integer does not tell apart.
    #[must_use]
    pub fn has_classes(self) -> bool {
        self.has_non_finite | self.has_negative_zero
    }

    /// Four integers whose maxima over all ranks are those of the joined span.
    #[must_use]
    pub fn to_maxima(self) -> [i64; 4] {
        [
            -i64::from(self.lowest),
            i64::from(self.end),
            i64::from(self.has_non_finite),
            i64::from(self.has_negative_zero),
        ]
    }

    /// The span that has these integers, if there is one.
    #[must_use]
    pub fn from_maxima(maxima: [i64; 4]) -> Option<Self> {
        let [lowest, end, has_non_finite, has_negative_zero] = maxima;
        let flag = |integer| match integer {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let span = Self {
            lowest: u32::try_from(lowest.checked_neg()?).ok()?,
            end: u32::try_from(end).ok()?,
            has_non_finite: flag(has_non_finite)?,
            has_negative_zero: flag(has_negative_zero)?,
        };
        let is_empty = span.lowest == Self::EMPTY.lowest && span.end == Self::EMPTY.end;
        (is_empty || (span.lowest < span.end && span.end <= END)).then_some(span)
    }
}

/// Magnitudes of values, in at most 31 bits: the first vector instructions of x86-64 compare numbers of that width.
struct Extremes {
    largest: i32,
    /// The smallest that is not zero, less one; the largest integer if there is none.
    smallest_less_one: i32,
    /// Negative if a value is -0.
    signs_of_zeros: i32,
}

impl Extremes {
    fn to_span<E: Element>(&self, has_non_finite: bool) -> Span {
        let has_negative_zero = self.signs_of_zeros < 0;
        if self.largest == 0 {
            return Span { has_non_finite, has_negative_zero, ..Span::EMPTY };
        }
        let position = |magnitude: i32| (magnitude >> kept_fraction_bits::<E>()).max(1) as u32 - 1;
        Span {
            lowest: position(self.smallest_less_one + 1),
            end: position(self.largest) + E::PRECISION,
            has_non_finite,
            has_negative_zero,
        }
    }
}

/// Finds the extremes of the values, or of those among them that are finite.
struct Scan<'a, E, const FINITE: bool> {
    values: &'a [E],
}

impl<E: Element, const FINITE: bool> Loop for Scan<'_, E, FINITE> {
    type Output = Extremes;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Extremes {
        let mut extremes = Extremes { largest: 0, smallest_less_one: i32::MAX, signs_of_zeros: 0 };
        for &value in self.values {
            let (signed, magnitude) = shorten_to_32_bits(value);
            // All bits are set if the value is zero.
            let less_one = magnitude - 1;
            extremes.signs_of_zeros |= less_one & signed;
            let is_left_out = FINITE && magnitude >= infinity::<E>();
            let magnitude = if is_left_out { 0 } else { magnitude };
            extremes.largest = extremes.largest.max(magnitude);
            extremes.smallest_less_one = extremes.smallest_less_one.min((magnitude - 1) & i32::MAX);
        }
        extremes
    }
}

/// The value in 32 bits with its sign in the topmost, and in 31 bits without it. Bits of the fraction that find no place
/// become one, so that only a zero has none.
#[inline(always)]
fn shorten_to_32_bits<E: Element>(value: E) -> (i32, i32) {
    let bits = value.to_bits_u64();
    let width = E::PRECISION + E::EXPONENT_BITS;
    if width > 32 {
        let signed = (bits >> 32) as i32;
        (signed, (signed & i32::MAX) | i32::from(bits as u32 != 0))
    } else {
        ((bits << (32 - width)) as i32, (bits as i32) & i32::MAX >> (32 - width))
    }
}

/// Bits of the fraction in a magnitude that [`shorten_to_32_bits`] gives.
const fn kept_fraction_bits<E: Element>() -> u32 {
    let width = E::PRECISION + E::EXPONENT_BITS;
    if width > 32 { 31 - E::EXPONENT_BITS } else { E::PRECISION - 1 }
}

const fn infinity<E: Element>() -> i32 {
    ((1 << E::EXPONENT_BITS) - 1) << kept_fraction_bits::<E>()
}
