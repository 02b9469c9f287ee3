//! The one rounding of a sum: to nearest, ties to even.

use core::hint::black_box;

use crate::class::Class;
use crate::format::{Element, Format};

/// Rounds the integer of `words`, the lowest of which is word `first`, or what `class` says instead.
pub(crate) fn round<F: Format>(class: Class, first: usize, words: &[u64]) -> F::Rounded {
    let field_max = (1_u64 << F::Rounded::EXPONENT_BITS) - 1;
    let infinity = field_max << (F::Rounded::PRECISION - 1);
    let sign = 1_u64 << (F::Rounded::PRECISION - 1 + F::Rounded::EXPONENT_BITS);
    let bits = match class {
        Class::Empty => 0,
        Class::NegativeZero => sign,
        Class::PositiveInfinity => infinity,
        Class::NegativeInfinity => sign | infinity,
        Class::Nan => infinity | 1 << (F::Rounded::PRECISION - 2),
        Class::Finite => {
            let is_negative = words.last().is_some_and(|&word| word >> 63 == 1);
            let mut magnitude = F::ZERO_WORDS;
            let magnitude = &mut magnitude.as_mut()[..words.len()];
            magnitude.copy_from_slice(words);
            if is_negative {
                negate(magnitude);
            }
            round_magnitude::<F>(first, magnitude).min(infinity)
                | if is_negative { sign } else { 0 }
        }
    };
    F::Rounded::from_bits_u64(bits)
}

/// The bits of the rounded magnitude; beyond those of infinity if it overflows.
fn round_magnitude<F: Format>(first: usize, words: &[u64]) -> u64 {
    let Some(top) = words.iter().rposition(|&word| word != 0) else { return 0 };
    let Some(bottom) = words.iter().position(|&word| word != 0) else { return 0 };
    let fraction_bits = F::Rounded::PRECISION - 1;
    let highest = 64 * (first + top) + 63 - words[top].leading_zeros() as usize;
    let lowest = 64 * (first + bottom) + words[bottom].trailing_zeros() as usize;
    // Products have bits below the smallest subnormal, all of which are rounded away.
    let below = (F::Rounded::SMALLEST - F::UNIT) as usize;
    let shift = highest.saturating_sub(fraction_bits as usize).max(below);
    if shift - below >= 1 << F::Rounded::EXPONENT_BITS {
        return u64::MAX;
    }
    let kept = bits_from(first, words, shift);
    let is_half_set = shift > 0 && bits_from(first, words, shift - 1) & 1 == 1;
    let rounds_up = is_half_set && (lowest < shift - 1 || kept & 1 == 1);
    // The implicit bit of a normal number adds one to the exponent field, as does a carry out of the fraction.
    (((shift - below) as u64) << fraction_bits) + kept + u64::from(rounds_up)
}

/// Rounds an integer whose lowest bit is bit `lowest`. A zero is +0.
#[inline(always)]
pub(crate) fn round_integer<E: Element>(integer: i128, lowest: u32) -> E {
    let magnitude = integer.unsigned_abs();
    // How far the bits that are kept are from the top, if the highest of them is set; in a subnormal it is not.
    let room = lowest + u128::BITS - E::PRECISION;
    let raise = (magnitude | 1).leading_zeros().min(room);
    let raised = magnitude << raise;
    let (top, rest) = ((raised >> 64) as u64, raised as u64);
    let kept = top >> (64 - E::PRECISION);
    let dropped = top << E::PRECISION | u64::from(rest != 0);
    let rounds_up = dropped > (1 << 63) - (kept & 1);
    // As in `round_magnitude`.
    let bits = (u64::from(room - raise) << (E::PRECISION - 1)) + kept + u64::from(rounds_up);
    let infinity = ((1 << E::EXPONENT_BITS) - 1) << (E::PRECISION - 1);
    let sign = u64::from(integer < 0) << (E::PRECISION - 1 + E::EXPONENT_BITS);
    E::from_bits_u64(if integer == 0 { 0 } else { bits.min(infinity) | sign })
}

/// Whether [`convert`] and [`convert_wide`] are right for integers whose lowest bit is bit `lowest`.
pub(crate) fn can_convert<E: Element>(lowest: u32) -> bool {
    let has_conversion = matches!(E::PRECISION, f32::PRECISION | f64::PRECISION);
    let is_normal = lowest >= E::PRECISION - 1;
    let has_unit = field_of_unit::<E>(lowest + 64) < (1 << E::EXPONENT_BITS) - 1;
    has_conversion && is_normal && has_unit && processor_rounds_to_nearest()
}

/// A program may have set another mode for its thread.
fn processor_rounds_to_nearest() -> bool {
    // Below and above the middle between one and the next number. No other mode rounds one down and the other up.
    let [below, above] = black_box([0.25 * f64::EPSILON, 0.75 * f64::EPSILON]);
    1.0 + below == 1.0 && 1.0 + above == 1.0 + f64::EPSILON
}

/// Rounds an integer by the processor's conversion. The product with a power of two is exact, as it is not subnormal:
/// no mode of the processor makes it zero.
#[inline(always)]
pub(crate) fn convert<E: Element>(integer: i64, lowest: u32) -> E {
    let unit = field_of_unit::<E>(lowest);
    E::from_bits_u64(if E::PRECISION == f64::PRECISION {
        (integer as f64 * f64::from_bits(u64::from(unit) << (f64::PRECISION - 1))).to_bits()
    } else {
        (integer as f32 * f32::from_bits(unit << (f32::PRECISION - 1))).to_bits().into()
    })
}

/// The same for an integer below 2^127. Finds its length by a conversion too: without instructions that not every
/// processor has, to count leading zeros takes longer.
#[inline(always)]
pub(crate) fn convert_wide<E: Element>(integer: i128, lowest: u32) -> E {
    let (high, low) = ((integer >> 64) as i64, integer as u64);
    let is_short = i128::from(low as i64) == integer;
    let exponent = (((high | 1) as f64).to_bits() >> (f64::PRECISION - 1)) as u32 & 0x7ff;
    let drop = if is_short { 0 } else { exponent - 1023 + 2 };
    // In two steps: a shift by 64 at once would be undefined.
    let dropped = low & (1_u64 << (drop / 2) << drop.div_ceil(2)).wrapping_sub(1);
    // Of more than 60 bits, so that the lowest one can stand for all that were dropped.
    let kept = (integer >> drop) as i64 | i64::from(dropped != 0);
    convert(kept, lowest + drop)
}

/// The exponent field of the value of bit `lowest`.
fn field_of_unit<E: Element>(lowest: u32) -> u32 {
    lowest + 2 - E::PRECISION
}

/// The 64 bits from bit `position` of the integer on.
fn bits_from(first: usize, words: &[u64], position: usize) -> u64 {
    let word =
        |index: usize| index.checked_sub(first).and_then(|at| words.get(at)).copied().unwrap_or(0);
    let both = u128::from(word(position / 64)) | u128::from(word(position / 64 + 1)) << 64;
    (both >> (position % 64)) as u64
}

fn negate(words: &mut [u64]) {
    let mut carry = true;
    for word in words {
        (*word, carry) = (!*word).overflowing_add(u64::from(carry));
    }
}
