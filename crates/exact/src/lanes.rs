//! Vectors of exact sums as lanes: integers of 64 bits that any reduction of integers adds, in any order.
//!
//! Owns the layout of an element: its digits, the lowest first, and counts where integers do not tell the values apart.
//! Must not know how ranks agree on a span or how their lanes are added.

use crate::class::Class;
use crate::format::{Element, Parts, bits_above_unit, split};
use crate::rounding::{can_convert, convert, convert_wide, round, round_integer};
use crate::span::Span;

/// Bits of a count if all three are in one lane.
const COUNT_BITS: u32 = 21;

/// Counts of one element: +infinities, -infinities, contributions that are not -0. A NaN counts as infinities of both signs.
type Counts = [bool; 3];

/// How an element is laid out in lanes. The span, the format and the number of ranks alone decide.
///
/// An element is an integer in units of the layout's lowest bit, as digits. Each digit has the sign of the value and takes a lane,
/// with so many bits free that the lanes of all ranks can be added without an overflow. If the span has infinities, NaNs or -0,
/// three counts follow: in one lane up to 2^21 - 1 ranks, in three lanes beyond.
///
/// Lanes that the span does not fill hold further bits, the most of them below it: the smallest value of a
/// vector changes more than its largest one. [`holds`](Self::holds) tells what a layout can still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    format: u8,
    /// Bit of the format's range with which the lowest digit begins.
    lowest: u32,
    digit_bits: u32,
    digits: usize,
    count_lanes: usize,
}

impl Layout {
    /// The layout for values of this span, of which up to `ranks` are added.
    #[must_use]
    pub fn new<E: Element>(span: Span, ranks: u32) -> Self {
        // So many digits of that length as there are ranks have a sum below 2^63, and so have any of them.
        let digit_bits = 31 + ranks.saturating_sub(1).leading_zeros();
        // A span of another format may lead beyond this one.
        let format_end = bits_above_unit::<E>();
        let end = span.end.min(format_end);
        let lowest = span.lowest.min(end);
        let digits = (end - lowest).div_ceil(digit_bits).max(1);
        let spare = digits * digit_bits - (end - lowest);
        let above = (spare / 4).min(format_end - end);
        let count_lanes = match span.has_classes() {
            false => 0,
            true if ranks >> COUNT_BITS == 0 => 1,
            true => 3,
        };
        Self {
            format: E::CODE,
            lowest: lowest.saturating_sub(spare - above),
            digit_bits,
            digits: digits as usize,
            count_lanes,
        }
    }

    /// How many lanes an element has. Those of element `i` begin at `i` times as many.
    #[must_use]
    pub fn lanes_per_element(&self) -> usize {
        self.digits + self.count_lanes
    }

    /// Whether values of this span can be written.
    #[must_use]
    pub fn holds(&self, span: Span) -> bool {
        let end = self.lowest + self.digits as u32 * self.digit_bits;
        self.lowest <= span.lowest
            && span.end <= end
            && (self.count_lanes > 0 || !span.has_classes())
    }

    /// Writes the values as lanes. What other values than those of a span that the layout [`holds`](Self::holds) become
    /// is unspecified.
    ///
    /// # Panics
    /// If the layout is one of another format, or there is another number of lanes.
    pub fn write<E: Element>(&self, values: &[E], lanes: &mut [i64]) {
        self.check::<E>(values.len(), lanes.len());
        match (self.digits, self.count_lanes) {
            (1, 0) => {
                for (&value, lane) in values.iter().zip(lanes) {
                    *lane = self.to_digit(&split(value));
                }
            }
            (2, 0) => {
                for (&value, pair) in values.iter().zip(lanes.as_chunks_mut().0) {
                    *pair = self.to_two_digits(&split(value));
                }
            }
            (3, 0) => {
                for (&value, three) in values.iter().zip(lanes.as_chunks_mut().0) {
                    *three = self.to_three_digits(&split(value));
                }
            }
            _ => {
                let elements = lanes.chunks_exact_mut(self.lanes_per_element());
                for (&value, lanes) in values.iter().zip(elements) {
                    self.write_element(value, lanes);
                }
            }
        }
    }

    /// Reads the sums from the added lanes of all ranks, and rounds each once.
    ///
    /// # Panics
    /// If the layout is one of another format, or there is another number of lanes.
    pub fn read<E: Element>(&self, lanes: &[i64], values: &mut [E]) {
        self.check::<E>(values.len(), lanes.len());
        let lowest = self.lowest;
        // Three digits may lose the lowest one.
        let can_convert = can_convert::<E>(lowest) && can_convert::<E>(lowest + self.digit_bits);
        match (self.digits, self.count_lanes, can_convert) {
            (1, 0, true) => {
                let sums = values.iter_mut().zip(lanes);
                sums.for_each(|(value, &lane)| *value = convert(lane, lowest));
            }
            (2, 0, true) => {
                let sums = values.iter_mut().zip(lanes.as_chunks().0);
                sums.for_each(|(value, &pair)| {
                    *value = convert_wide(self.join_digits(pair), lowest);
                });
            }
            (3, 0, true) => {
                let sums = values.iter_mut().zip(lanes.as_chunks().0);
                sums.for_each(|(value, &three)| {
                    let (integer, lowest) = self.join_three_digits(three);
                    *value = convert_wide(integer, lowest);
                });
            }
            _ => {
                let elements = lanes.chunks_exact(self.lanes_per_element());
                for (value, lanes) in values.iter_mut().zip(elements) {
                    *value = self.read_element(lanes);
                }
            }
        }
    }

    fn check<E: Element>(&self, values: usize, lanes: usize) {
        assert_eq!(self.format, E::CODE, "the format of the layout");
        assert_eq!(
            Some(lanes),
            values.checked_mul(self.lanes_per_element()),
            "lanes of all values"
        );
    }

    /// All bits of a digit.
    #[inline(always)]
    fn mask(&self) -> u64 {
        (1 << self.digit_bits) - 1
    }

    /// The value's lowest bit in units of the layout's; anything if the value is zero.
    #[inline(always)]
    fn offset(&self, parts: &Parts) -> u32 {
        parts.position.wrapping_sub(self.lowest)
    }

    #[inline(always)]
    fn to_digit(self, parts: &Parts) -> i64 {
        signed(parts.significand.wrapping_shl(self.offset(parts)), parts.is_negative)
    }

    #[inline(always)]
    fn to_two_digits(self, parts: &Parts) -> [i64; 2] {
        let magnitude = u128::from(parts.significand).wrapping_shl(self.offset(parts));
        let low = magnitude as u64 & self.mask();
        let high = (magnitude >> self.digit_bits) as u64;
        [signed(low, parts.is_negative), signed(high, parts.is_negative)]
    }

    #[inline(always)]
    fn join_digits(&self, [low, high]: [i64; 2]) -> i128 {
        (i128::from(high) << self.digit_bits) + i128::from(low)
    }

    #[inline(always)]
    fn to_three_digits(self, parts: &Parts) -> [i64; 3] {
        [0, 1, 2].map(|at| {
            let shift = self.offset(parts).wrapping_sub(at * self.digit_bits) as i32;
            let up = parts.significand.checked_shl(shift as u32).unwrap_or(0);
            let down = parts.significand.checked_shr(shift.unsigned_abs()).unwrap_or(0);
            signed(if shift < 0 { down } else { up } & self.mask(), parts.is_negative)
        })
    }

    /// The sum as an integer with the bit where it begins. If the sum is long, the lowest digit is dropped, and the lowest
    /// bit that is left is set also if a bit of that digit is.
    #[inline(always)]
    fn join_three_digits(&self, [low, middle, high]: [i64; 3]) -> (i128, u32) {
        let upper = self.join_digits([middle.wrapping_add(low >> self.digit_bits), high]);
        let low = i128::from(low as u64 & self.mask());
        if i128::from((upper as i64) << 1 >> 1) == upper {
            (upper << self.digit_bits | low, self.lowest)
        } else {
            (upper | i128::from(low != 0), self.lowest + self.digit_bits)
        }
    }

    fn write_element<E: Element>(&self, value: E, lanes: &mut [i64]) {
        let parts = split(value);
        let (digits, counts) = lanes.split_at_mut(self.digits);
        match digits {
            _ if !parts.class.is_finite() => digits.fill(0),
            [digit] => *digit = self.to_digit(&parts),
            [low, high] => [*low, *high] = self.to_two_digits(&parts),
            _ => self.write_digits(&parts, digits),
        }
        let each = counts_of(parts.class).map(i64::from);
        match counts {
            [] => {}
            [count] => *count = each[0] | each[1] << COUNT_BITS | each[2] << (2 * COUNT_BITS),
            _ => counts.copy_from_slice(&each),
        }
    }

    fn write_digits(&self, parts: &Parts, digits: &mut [i64]) {
        digits.fill(0);
        let offset = self.offset(parts);
        let mut magnitude = u128::from(parts.significand) << (offset % self.digit_bits);
        let from = (offset / self.digit_bits) as usize;
        for digit in digits.iter_mut().skip(from) {
            *digit = signed(magnitude as u64 & self.mask(), parts.is_negative);
            magnitude >>= self.digit_bits;
            if magnitude == 0 {
                break;
            }
        }
    }

    fn read_element<E: Element>(&self, lanes: &[i64]) -> E {
        let (digits, counts) = lanes.split_at(self.digits);
        let class = match *counts {
            [] => Class::Finite,
            [count] => {
                let bits = (1 << COUNT_BITS) - 1;
                class_of([0, 1, 2].map(|at| count >> (at * COUNT_BITS) & bits != 0))
            }
            _ => class_of([0, 1, 2].map(|at| counts[at] != 0)),
        };
        match *digits {
            _ if class != Class::Finite => {
                E::from_bits_u64(round::<E>(class, 0, &[]).to_bits_u64())
            }
            [digit] => round_integer(digit.into(), self.lowest),
            [low, high] => round_integer(self.join_digits([low, high]), self.lowest),
            _ => self.round_digits(digits),
        }
    }

    /// Rounds the sum of any number of digits.
    fn round_digits<E: Element>(&self, digits: &[i64]) -> E {
        let carried = |carry: i64, &digit: &i64| digit.wrapping_add(carry) >> self.digit_bits;
        let is_negative = digits.iter().fold(0, carried) < 0;
        let (magnitude, lowest) = self.magnitude(digits, is_negative);
        round_integer(if is_negative { magnitude.wrapping_neg() } else { magnitude }, lowest)
    }

    /// The magnitude of a sum that has this sign, with the bit where it begins. The highest 64 bits or more are kept; the
    /// lowest of them is set also if a bit that was dropped is.
    fn magnitude(&self, digits: &[i64], is_negative: bool) -> (i128, u32) {
        let mut integer = 0_i128;
        let mut lowest = self.lowest;
        let mut position = self.lowest;
        let mut carry = 0;
        for (at, &digit) in digits.iter().enumerate() {
            let sum = signed(digit as u64, is_negative).wrapping_add(carry);
            carry = sum >> self.digit_bits;
            let is_topmost = at + 1 == digits.len();
            let kept = if is_topmost { sum } else { sum & self.mask() as i64 };
            if kept != 0 {
                let dropped = (position - lowest).saturating_sub(64);
                lowest += dropped;
                integer = shift_out(integer, dropped) | i128::from(kept) << (position - lowest);
            }
            position += self.digit_bits;
        }
        (integer, lowest)
    }
}

/// Drops the lowest bits of an integer that is not negative. The lowest bit that is left is set also if one of them is.
fn shift_out(integer: i128, bits: u32) -> i128 {
    let bits = bits.min(i128::BITS - 1);
    let dropped = integer & (1_i128 << bits).wrapping_sub(1);
    integer >> bits | i128::from(dropped != 0)
}

#[inline(always)]
fn signed(magnitude: u64, is_negative: bool) -> i64 {
    let sign = -i64::from(is_negative);
    (magnitude as i64 ^ sign).wrapping_sub(sign)
}

fn counts_of(class: Class) -> Counts {
    let is_nan = class == Class::Nan;
    [
        class == Class::PositiveInfinity || is_nan,
        class == Class::NegativeInfinity || is_nan,
        class != Class::NegativeZero,
    ]
}

/// The class of a sum, from which of its counts are not zero.
fn class_of(counts: Counts) -> Class {
    match counts {
        [true, true, _] => Class::Nan,
        [true, false, _] => Class::PositiveInfinity,
        [false, true, _] => Class::NegativeInfinity,
        [false, false, true] => Class::Finite,
        [false, false, false] => Class::NegativeZero,
    }
}
