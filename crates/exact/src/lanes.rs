//! Vectors of exact sums as lanes: integers of 64 bits that any reduction of integers adds, in any order.
//!
//! Owns the layout of an element: its digits, the lowest first, and counts where integers do not tell the values apart.
//! Must not know how ranks agree on a span or how their lanes are added.

use crate::class::Class;
use crate::digits::{Add, COUNT_BITS, Digits, Read, Write, class_of, count_of, with_sign};
use crate::format::{Element, Parts, bits_above_unit, split};
use crate::isa::{Isa, VECTOR_VALUES_MIN};
use crate::rounding::{bits_of_class, can_convert, round_integer};
use crate::span::Span;

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
    digits: Digits,
    digit_lanes: usize,
    count_lanes: usize,
}

/// The most digits that loops take at once.
const DIRECT_DIGITS_MAX: usize = 3;

/// Runs the loop for a layout's number of digits and of lanes, if there is one and the condition holds, or something else.
macro_rules! run_direct {
    ($layout:ident, $isa:ident, $loop:ident { $($field:ident),* }, $condition:expr, $else:expr) => {{
        let digits = $layout.digits;
        match ($layout.digit_lanes, $layout.count_lanes, $condition) {
            (1, 0, true) => $isa.run($loop::<E, 1, 1> { digits, $($field),* }),
            (2, 0, true) => $isa.run($loop::<E, 2, 2> { digits, $($field),* }),
            (3, 0, true) => $isa.run($loop::<E, 3, 3> { digits, $($field),* }),
            (1, 1, true) => $isa.run($loop::<E, 1, 2> { digits, $($field),* }),
            (2, 1, true) => $isa.run($loop::<E, 2, 3> { digits, $($field),* }),
            (3, 1, true) => $isa.run($loop::<E, 3, 4> { digits, $($field),* }),
            _ => $else,
        }
    }};
}

impl Layout {
    /// The most lanes that an element has in a layout with [`direct_lanes`](Self::direct_lanes).
    pub(crate) const DIRECT_LANES_MAX: usize = DIRECT_DIGITS_MAX + 1;

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
            digits: Digits { lowest: lowest.saturating_sub(spare - above), bits: digit_bits },
            digit_lanes: digits as usize,
            count_lanes,
        }
    }

    /// How many lanes an element has. Those of element `i` begin at `i` times as many.
    #[must_use]
    pub fn lanes_per_element(&self) -> usize {
        self.digit_lanes + self.count_lanes
    }

    /// Whether values of this span can be written.
    #[must_use]
    pub fn holds(&self, span: Span) -> bool {
        let end = self.digits.lowest + self.digit_lanes as u32 * self.digits.bits;
        self.digits.lowest <= span.lowest
            && span.end <= end
            && (self.count_lanes > 0 || !span.has_classes())
    }

    /// Writes the values as lanes. What other values than those of a span that the layout [`holds`](Self::holds) become
    /// is unspecified.
    ///
    /// # Panics
    /// If the layout is one of another format, or there is another number of lanes.
    #[inline]
    pub fn write<E: Element>(&self, values: &[E], lanes: &mut [i64]) {
        if values.len() >= VECTOR_VALUES_MIN {
            return self.write_with(Isa::best(), values, lanes);
        }
        self.check::<E>(values.len(), lanes.len());
        self.write_elements(values, lanes);
    }

    /// The same by the loops of an instruction set, if the processor has it.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_with<E: Element>(&self, isa: Isa, values: &[E], lanes: &mut [i64]) {
        self.check::<E>(values.len(), lanes.len());
        run_direct!(self, isa, Write { values, lanes }, true, self.write_elements(values, lanes));
    }

    /// Writes one value after the other: the code of few values is short, and has to be fetched between operations.
    #[inline]
    fn write_elements<E: Element>(&self, values: &[E], mut lanes: &mut [i64]) {
        for &value in values {
            let (element, behind) = lanes.split_at_mut(self.lanes_per_element());
            self.write_element(value, element);
            lanes = behind;
        }
    }

    /// How many lanes so many elements have; none unless they are digits and counts as the loops of [`digits`](crate::digits) take them.
    pub(crate) fn direct_lanes(&self, elements: usize) -> Option<usize> {
        let is_direct = self.digit_lanes <= DIRECT_DIGITS_MAX && self.count_lanes <= 1;
        is_direct.then(|| elements * self.lanes_per_element())
    }

    /// Adds the values to lanes, as [`write_with`](Self::write_with) would write them, in a layout with
    /// [`direct_lanes`](Self::direct_lanes).
    pub(crate) fn add_with<E: Element>(&self, isa: Isa, values: &[E], lanes: &mut [i64]) {
        self.check::<E>(values.len(), lanes.len());
        run_direct!(
            self,
            isa,
            Add { values, lanes },
            true,
            unreachable!("the lanes are not direct")
        );
    }

    /// Reads the sums from the added lanes of all ranks, and rounds each once.
    ///
    /// # Panics
    /// If the layout is one of another format, or there is another number of lanes.
    #[inline]
    pub fn read<E: Element>(&self, lanes: &[i64], values: &mut [E]) {
        if values.len() >= VECTOR_VALUES_MIN {
            return self.read_with(Isa::best(), lanes, values);
        }
        self.check::<E>(values.len(), lanes.len());
        self.read_elements(lanes, values);
    }

    /// The same by the loops of an instruction set, if the processor has it.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    pub fn read_with<E: Element>(&self, isa: Isa, lanes: &[i64], values: &mut [E]) {
        self.check::<E>(values.len(), lanes.len());
        let digits = self.digits;
        // Three digits may lose the lowest one.
        let can_convert =
            [0, digits.bits].iter().all(|bits| can_convert::<E>(digits.lowest + bits));
        run_direct!(
            self,
            isa,
            Read { lanes, values },
            can_convert,
            self.read_elements(lanes, values)
        );
    }

    #[inline]
    fn read_elements<E: Element>(&self, mut lanes: &[i64], values: &mut [E]) {
        for value in values {
            let (element, behind) = lanes.split_at(self.lanes_per_element());
            *value = self.read_element(element);
            lanes = behind;
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

    #[inline]
    fn write_element<E: Element>(&self, value: E, lanes: &mut [i64]) {
        let Parts { is_negative, significand, position, .. } = split(value);
        // Anything if the value is zero.
        let offset = position.wrapping_sub(self.digits.lowest);
        match *lanes {
            // One and two digits are what values near each other take.
            [ref mut digit] => *digit = with_sign(significand.wrapping_shl(offset), is_negative),
            [ref mut low, ref mut high] if self.count_lanes == 0 => {
                let magnitude = u128::from(significand).wrapping_shl(offset);
                let above = (magnitude >> self.digits.bits) as u64;
                *low = with_sign(magnitude as u64 & self.digits.mask(), is_negative);
                *high = with_sign(above, is_negative);
            }
            _ => self.write_any_lanes(value, lanes),
        }
    }

    fn write_any_lanes<E: Element>(&self, value: E, lanes: &mut [i64]) {
        let parts = split(value);
        let (digits, counts) = lanes.split_at_mut(self.digit_lanes);
        if parts.class.is_finite() {
            self.write_digits(&parts, digits);
        } else {
            digits.fill(0);
        }
        let count = count_of(parts.class);
        match counts {
            [] => {}
            [all] => *all = count,
            _ => {
                for (at, each) in counts.iter_mut().enumerate() {
                    *each = count >> (at as u32 * COUNT_BITS) & 1;
                }
            }
        }
    }

    fn write_digits(&self, parts: &Parts, digits: &mut [i64]) {
        digits.fill(0);
        let bits = self.digits.bits;
        // Anything if the value is zero.
        let offset = parts.position.wrapping_sub(self.digits.lowest);
        let mut magnitude = u128::from(parts.significand) << (offset % bits);
        for digit in digits.iter_mut().skip((offset / bits) as usize) {
            *digit = with_sign(magnitude as u64 & self.digits.mask(), parts.is_negative);
            magnitude >>= bits;
            if magnitude == 0 {
                break;
            }
        }
    }

    #[inline]
    fn read_element<E: Element>(&self, lanes: &[i64]) -> E {
        let (digits, counts) = lanes.split_at(self.digit_lanes);
        let class = match *counts {
            [] => Class::Finite,
            [all] => class_of(all),
            _ => class_of(
                (0..)
                    .zip(counts)
                    .fold(0, |all, (at, &each)| all | i64::from(each != 0) << (at * COUNT_BITS)),
            ),
        };
        match *digits {
            _ if class != Class::Finite => E::from_bits_u64(bits_of_class::<E>(class)),
            [digit] => round_integer(digit.into(), self.digits.lowest),
            [low, high] => {
                let sum = (i128::from(high) << self.digits.bits) + i128::from(low);
                round_integer(sum, self.digits.lowest)
            }
            _ => self.round_digits(digits),
        }
    }

    /// Rounds the sum of any number of digits.
    fn round_digits<E: Element>(&self, digits: &[i64]) -> E {
        let carried = |carry: i64, &digit: &i64| digit.wrapping_add(carry) >> self.digits.bits;
        let is_negative = digits.iter().fold(0, carried) < 0;
        let (magnitude, lowest) = self.magnitude(digits, is_negative);
        round_integer(if is_negative { magnitude.wrapping_neg() } else { magnitude }, lowest)
    }

    /// The magnitude of a sum that has this sign, with the bit where it begins. The highest 64 bits or more are kept; the
    /// lowest of them is set also if a bit that was dropped is.
    fn magnitude(&self, digits: &[i64], is_negative: bool) -> (i128, u32) {
        let bits = self.digits.bits;
        let mut integer = 0_i128;
        let mut lowest = self.digits.lowest;
        let mut position = lowest;
        let mut carry = 0;
        for (at, &digit) in digits.iter().enumerate() {
            let sum = with_sign(digit as u64, is_negative).wrapping_add(carry);
            carry = sum >> bits;
            let is_topmost = at + 1 == digits.len();
            let kept = if is_topmost { sum } else { sum & self.digits.mask() as i64 };
            if kept != 0 {
                let dropped = (position - lowest).saturating_sub(64);
                lowest += dropped;
                integer = shift_out(integer, dropped) | i128::from(kept) << (position - lowest);
            }
            position += bits;
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
