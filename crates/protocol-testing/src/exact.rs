//! Exact sums of floats, as operations carry them: integers, several for each value.
//!
//! Owns the values that members contribute, and the check of what comes back against accumulators of full width. How values become
//! integers and back is the product's (`tributary_exact`).

use half::{bf16, f16};
use tributary_exact::{Accumulator, Element, Format, Layout, Span};
use tributary_wire::Datatype;

use crate::contribution::Contribution;

/// The types of floats whose exact sums are drawn.
pub(crate) const FORMATS: [Datatype; 4] =
    [Datatype::F64, Datatype::F32, Datatype::F16, Datatype::Bf16];

/// The most members whose integers may be added.
const MEMBERS_MAX: u32 = 16;

/// Calls a function for the format that a type of floats has.
macro_rules! for_format {
    ($format:expr, $function:ident($($argument:expr),*)) => {
        match $format {
            Datatype::F64 => $function::<f64>($($argument),*),
            Datatype::F32 => $function::<f32>($($argument),*),
            Datatype::F16 => $function::<f16>($($argument),*),
            Datatype::Bf16 => $function::<bf16>($($argument),*),
            other => panic!("{other:?} has no exact sums"),
        }
    };
}

/// How many integers a value of this type takes: digits, and of half of the types counts of what is not finite.
pub(crate) fn integers_per_value(format: Datatype) -> u64 {
    for_format!(format, integers())
}

/// Appends the integers from `first` to before `end` of a member's vector.
pub(crate) fn append(
    of: Contribution,
    format: Datatype,
    first: u64,
    end: u64,
    bytes: &mut Vec<u8>,
) {
    for_format!(format, append_as(of, first, end, bytes));
}

/// Whether the integers of a whole result, rounded, are the real sums of these members' values.
pub(crate) fn is_sum(
    result: &[u8],
    format: Datatype,
    members: impl Iterator<Item = Contribution> + Clone,
) -> bool {
    for_format!(format, is_sum_as(result, members))
}

/// What values of a type look like.
trait Values: Element + Format<Rounded = Self> {
    /// Exponents are below and above 0 by so much at most.
    const EXPONENT_MAX: u64;
    /// Whether some values are infinite, NaN, or -0.
    const HAS_CLASSES: bool;
    fn of(value: f64) -> Self;
}

impl Values for f64 {
    const EXPONENT_MAX: u64 = 50;
    const HAS_CLASSES: bool = false;
    fn of(value: f64) -> Self {
        value
    }
}

impl Values for f32 {
    const EXPONENT_MAX: u64 = 30;
    const HAS_CLASSES: bool = true;
    fn of(value: f64) -> Self {
        value as Self
    }
}

impl Values for f16 {
    const EXPONENT_MAX: u64 = 14;
    const HAS_CLASSES: bool = true;
    fn of(value: f64) -> Self {
        Self::from_f64(value)
    }
}

impl Values for bf16 {
    const EXPONENT_MAX: u64 = 20;
    const HAS_CLASSES: bool = false;
    fn of(value: f64) -> Self {
        Self::from_f64(value)
    }
}

/// The layout that all members use, as if they had agreed on it.
fn layout<E: Values>() -> Layout {
    let power = |exponent: i32| 2_f64.powi(exponent);
    let largest = E::EXPONENT_MAX as i32;
    let not_finite = if E::HAS_CLASSES { f64::NEG_INFINITY } else { 1.0 };
    // Values are below twice the largest power.
    let span = Span::of(&[power(-largest), power(largest + 1), not_finite].map(E::of));
    Layout::new::<E>(span, MEMBERS_MAX)
}

fn integers<E: Values>() -> u64 {
    layout::<E>().lanes_per_element() as u64
}

fn append_as<E: Values>(of: Contribution, first: u64, end: u64, bytes: &mut Vec<u8>) {
    let layout = layout::<E>();
    let per_value = layout.lanes_per_element() as u64;
    let mut lanes = vec![0; per_value as usize];
    let mut written = None;
    for at in first..end {
        let index = at / per_value;
        if written.replace(index) != Some(index) {
            layout.write(&[value::<E>(of, index)], &mut lanes);
        }
        bytes.extend(lanes[(at % per_value) as usize].to_le_bytes());
    }
}

fn is_sum_as<E: Values>(
    result: &[u8],
    members: impl Iterator<Item = Contribution> + Clone,
) -> bool {
    let layout = layout::<E>();
    let (words, rest) = result.as_chunks();
    assert!(rest.is_empty(), "integers have 8 bytes");
    let lanes: Vec<i64> = words.iter().map(|word| i64::from_le_bytes(*word)).collect();
    let mut values = vec![E::of(0.0); lanes.len() / layout.lanes_per_element()];
    layout.read(&lanes, &mut values);
    (0..).zip(values).all(|(index, value_read)| {
        let mut sum = Accumulator::<E>::default();
        members.clone().for_each(|member| sum.add(value::<E>(member, index)));
        sum.round().to_bits_u64() == value_read.to_bits_u64()
    })
}

/// A value of a member's vector. One of four has the same magnitude at all members, and mostly cancels.
fn value<E: Values>(of: Contribution, index: u64) -> E {
    let own = of.word(index);
    let common = Contribution { member: u32::MAX, ..of }.word(index);
    if E::HAS_CLASSES && own.is_multiple_of(64) {
        let rare = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0];
        return E::of(rare[(own >> 6) as usize % rare.len()]);
    }
    let cancels = common.is_multiple_of(4);
    let word = if cancels { common } else { own };
    let is_negative = if cancels { of.member % 2 == 1 } else { own >> 63 == 1 };
    let significand = f64::from_bits(1_f64.to_bits() | word << 1 >> 12);
    let exponent = (word >> 3) % (2 * E::EXPONENT_MAX + 1);
    let magnitude = significand * 2_f64.powi(exponent as i32 - E::EXPONENT_MAX as i32);
    E::of(if is_negative { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of members' integers, and whether it is found right.
    fn sum_of(format: Datatype, counted: &[u32], members: u32) -> bool {
        const VALUES: u64 = 20;
        let end = VALUES * integers_per_value(format);
        let of = |member| Contribution { tag: 5, operation: 2, member };
        let mut result = vec![0_u8; end as usize * 8];
        for member in counted {
            let mut bytes = Vec::new();
            append(of(*member), format, 0, 7, &mut bytes);
            append(of(*member), format, 7, end, &mut bytes);
            for (sum, more) in result.as_chunks_mut().0.iter_mut().zip(bytes.as_chunks().0) {
                *sum =
                    i64::from_le_bytes(*sum).wrapping_add(i64::from_le_bytes(*more)).to_le_bytes();
            }
        }
        is_sum(&result, format, (0..members).map(of))
    }

    #[test]
    fn sums_are_right_and_every_miscount_shows() {
        for format in FORMATS {
            assert!(sum_of(format, &[2, 0, 1], 3), "{format:?}");
            assert!(!sum_of(format, &[0, 1], 3), "{format:?}: one is missing");
            assert!(!sum_of(format, &[0, 1, 1, 2], 3), "{format:?}: one is counted twice");
        }
    }

    #[test]
    fn layouts_have_one_to_three_digits_with_counts_and_without() {
        assert_eq!(FORMATS.map(integers_per_value), [3, 2 + 1, 1 + 1, 1]);
    }
}
