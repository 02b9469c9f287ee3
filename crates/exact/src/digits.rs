//! Values as one, two or three digits, and back, in steps that vector instructions have: words of 64 bits, no branches, shifts by
//! any number of bits.
//!
//! Owns digits and counts. Must not know spans, or how lanes travel.

use core::array;

use crate::class::Class;
use crate::format::{Element, split};
use crate::isa::Loop;
use crate::rounding::{bits_of_class, from_double};

/// Where the digits of a vector's elements lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digits {
    /// Bit of the format's range with which the lowest one begins.
    pub(crate) lowest: u32,
    /// Bits of each, 63 at most.
    pub(crate) bits: u32,
}

/// Writes values as `COUNT` digits, and if `LANES` is one more, with a lane of counts behind them.
pub(crate) struct Write<'a, E, const COUNT: usize, const LANES: usize> {
    pub(crate) digits: Digits,
    pub(crate) values: &'a [E],
    pub(crate) lanes: &'a mut [i64],
}

/// Adds values to such lanes.
pub(crate) struct Add<'a, E, const COUNT: usize, const LANES: usize> {
    pub(crate) digits: Digits,
    pub(crate) values: &'a [E],
    pub(crate) lanes: &'a mut [i64],
}

/// Reads sums from such lanes, and rounds each once.
pub(crate) struct Read<'a, E, const COUNT: usize, const LANES: usize> {
    pub(crate) digits: Digits,
    pub(crate) lanes: &'a [i64],
    pub(crate) values: &'a mut [E],
}

impl<E: Element, const COUNT: usize, const LANES: usize> Loop for Write<'_, E, COUNT, LANES> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (&value, lanes) in self.values.iter().zip(self.lanes.as_chunks_mut::<LANES>().0) {
            *lanes = self.digits.lanes_of::<E, COUNT, LANES>(value);
        }
    }
}

impl<E: Element, const COUNT: usize, const LANES: usize> Loop for Add<'_, E, COUNT, LANES> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (&value, lanes) in self.values.iter().zip(self.lanes.as_chunks_mut::<LANES>().0) {
            let more = self.digits.lanes_of::<E, COUNT, LANES>(value);
            *lanes = array::from_fn(|at| lanes[at].wrapping_add(more[at]));
        }
    }
}

impl<E: Element, const COUNT: usize, const LANES: usize> Loop for Read<'_, E, COUNT, LANES> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (value, lanes) in self.values.iter_mut().zip(self.lanes.as_chunks::<LANES>().0) {
            let sum: E = self.digits.round::<E, COUNT>(array::from_fn(|at| lanes[at]));
            *value = if LANES > COUNT { apply_counts(sum, lanes[COUNT]) } else { sum };
        }
    }
}

impl Digits {
    /// All bits of a digit.
    #[inline(always)]
    pub(crate) fn mask(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// The digits of a value, and its counts if they have a lane; the digits are zero then if it is not finite.
    #[inline(always)]
    fn lanes_of<E: Element, const COUNT: usize, const LANES: usize>(
        self,
        value: E,
    ) -> [i64; LANES] {
        let mut parts = split(value);
        if LANES > COUNT && !parts.class.is_finite() {
            parts.significand = 0;
        }
        let offset = u64::from(parts.position).wrapping_sub(self.lowest.into());
        array::from_fn(|at| {
            if at == COUNT {
                return count_of(parts.class);
            }
            let shift = offset.wrapping_sub(at as u64 * u64::from(self.bits));
            // One of the two shifts is by more than all bits, unless both are by none.
            let magnitude = shift_up(parts.significand, shift)
                | shift_down(parts.significand, shift.wrapping_neg());
            with_sign(magnitude & self.mask(), parts.is_negative)
        })
    }

    /// The rounded sum that these digits are.
    #[inline(always)]
    fn round<E: Element, const COUNT: usize>(self, digits: [i64; COUNT]) -> E {
        match *digits.as_slice() {
            [digit] => convert(digit, self.lowest.into()),
            [low, high] => {
                let (rest, carry) = self.carry(low);
                self.round_pair(high.wrapping_add(carry), rest, self.lowest.into())
            }
            [low, middle, high] => {
                let (low, carry) = self.carry(low);
                let (middle, carry) = self.carry(middle.wrapping_add(carry));
                let high = high.wrapping_add(carry);
                let joined = high << self.bits | middle as i64;
                // Of a long sum the lowest digit is dropped. The lowest bit that is left is set also if one of that digit is.
                let is_long = joined >> self.bits != high;
                let lowest = u64::from(self.lowest) + if is_long { self.bits.into() } else { 0 };
                let rest = if is_long { middle | u64::from(low != 0) } else { low };
                self.round_pair(if is_long { high } else { joined }, rest, lowest)
            }
            _ => unreachable!("more digits are not read by these steps"),
        }
    }

    /// A digit without what belongs to the next one, and that.
    #[inline(always)]
    fn carry(self, digit: i64) -> (u64, i64) {
        let rest = digit as u64 & self.mask();
        #[cfg(feature = "planted-bugs")]
        if crate::planted::loses_carry_of_digit() {
            return (rest, 0);
        }
        (rest, digit >> self.bits)
    }

    /// Rounds the sum of an integer of digits above one digit, which is not negative.
    #[inline(always)]
    fn round_pair<E: Element>(self, high: i64, low: u64, lowest: u64) -> E {
        let bits = i64::from(self.bits);
        // As many bits of the lower digit as there is room for, at most those of a 64-bit integer with its sign.
        let kept_bits = (63 - length(high)).clamp(0, bits);
        let dropped_bits = (bits - kept_bits) as u64;
        let dropped = low & shift_up(1, dropped_bits).wrapping_sub(1);
        let kept = shift_up(high as u64, kept_bits as u64) | shift_down(low, dropped_bits);
        // It has more bits than the result, so its lowest one can stand for all that were dropped.
        convert((kept | u64::from(dropped != 0)) as i64, lowest + dropped_bits)
    }
}

/// Bits of each of three counts in a lane: of +infinities, -infinities, and contributions that are not -0. A NaN counts as
/// infinities of both signs.
pub(crate) const COUNT_BITS: u32 = 21;

/// The counts of one value.
#[inline(always)]
pub(crate) fn count_of(class: Class) -> i64 {
    let is_nan = class == Class::Nan;
    i64::from(class == Class::PositiveInfinity || is_nan)
        | i64::from(class == Class::NegativeInfinity || is_nan) << COUNT_BITS
        | i64::from(class != Class::NegativeZero) << (2 * COUNT_BITS)
}

/// What a sum is, from the sum of all counts.
#[inline(always)]
pub(crate) fn class_of(count: i64) -> Class {
    let is_counted = |at: u32| count as u64 >> (at * COUNT_BITS) & ((1 << COUNT_BITS) - 1) != 0;
    match [0, 1, 2].map(is_counted) {
        [true, true, _] => Class::Nan,
        [true, false, _] => Class::PositiveInfinity,
        [false, true, _] => Class::NegativeInfinity,
        [false, false, true] => Class::Finite,
        [false, false, false] => Class::NegativeZero,
    }
}

/// The sum of finite values, or what the counts of others say instead.
#[inline(always)]
fn apply_counts<E: Element>(sum: E, count: i64) -> E {
    match class_of(count) {
        Class::Finite => sum,
        class => E::from_bits_u64(bits_of_class::<E>(class)),
    }
}

#[inline(always)]
pub(crate) fn with_sign(magnitude: u64, is_negative: bool) -> i64 {
    let sign = -i64::from(is_negative);
    (magnitude as i64 ^ sign).wrapping_sub(sign)
}

/// A shift by any number of bits.
#[inline(always)]
fn shift_up(integer: u64, bits: u64) -> u64 {
    if bits < 64 { integer << bits } else { 0 }
}

/// A shift by any number of bits.
#[inline(always)]
fn shift_down(integer: u64, bits: u64) -> u64 {
    if bits < 64 { integer >> bits } else { 0 }
}

/// How many bits an integer has without its sign, or one more, up to 64. There is no vector instruction that counts zeros in all
/// processors, but a conversion finds the exponent.
#[inline(always)]
fn length(integer: i64) -> i64 {
    let magnitude = (integer ^ integer >> 63) | 1;
    (nearest_double(magnitude).to_bits() >> (f64::PRECISION - 1)) as i64 - 1022
}

/// The nearest double. Both parts have fewer bits than one, and so has their product: only the addition rounds.
#[inline(always)]
fn nearest_double(integer: i64) -> f64 {
    const HIGH_UNIT: f64 = (1_u64 << 32) as f64;
    f64::from((integer >> 32) as i32) * HIGH_UNIT + f64::from(integer as u32)
}

/// Rounds an integer whose lowest bit is bit `lowest`, where [`can_convert`](crate::rounding::can_convert) says that this is right.
/// The product with a power of two is exact, as it is not subnormal: no mode of the processor makes it zero.
#[inline(always)]
fn convert<E: Element>(integer: i64, lowest: u64) -> E {
    let unit = f64::from_bits(
        lowest.wrapping_add_signed(i64::from(E::SMALLEST) + 1023) << (f64::PRECISION - 1),
    );
    if E::PRECISION == f64::PRECISION {
        return from_double(nearest_double(integer) * unit);
    }
    // A double holds 53 bits. Of a longer integer the lowest one that is left is set also if one that is dropped is, so that
    // the conversion is exact, and the result is rounded once.
    const DROPPED: i64 = (1 << 11) - 1;
    let is_long = (integer ^ integer >> 63) >> f64::PRECISION != 0;
    let is_inexact = i64::from(integer & DROPPED != 0) << DROPPED.count_ones();
    let short = if is_long { integer & !DROPPED | is_inexact } else { integer };
    from_double(nearest_double(short) * unit)
}
