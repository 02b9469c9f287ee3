//! The one rounding of a sum: to nearest, ties to even.

use crate::class::Class;
use crate::format::{Element, Format};
use crate::mode::rounds_to_nearest;

/// Rounds the integer of `words`, the lowest of which is word `first`, or what `class` says instead.
pub(crate) fn round<F: Format>(class: Class, first: usize, words: &[u64]) -> F::Rounded {
    let infinity = infinity::<F::Rounded>();
    let bits = match class {
        Class::Finite => {
            let is_negative = words.last().is_some_and(|&word| word >> 63 == 1);
            let mut magnitude = F::ZERO_WORDS;
            let magnitude = &mut magnitude.as_mut()[..words.len()];
            magnitude.copy_from_slice(words);
            if is_negative {
                negate(magnitude);
            }
            round_magnitude::<F>(first, magnitude).min(infinity)
                | if is_negative { sign::<F::Rounded>() } else { 0 }
        }
        other => bits_of_class::<F::Rounded>(other),
    };
    F::Rounded::from_bits_u64(bits)
}

/// The bits of a sum of this class; those of +0 if it is finite.
#[inline(always)]
pub(crate) fn bits_of_class<E: Element>(class: Class) -> u64 {
    let infinity = infinity::<E>();
    match class {
        Class::Empty | Class::Finite => 0,
        Class::NegativeZero => sign::<E>(),
        Class::PositiveInfinity => infinity,
        Class::NegativeInfinity => sign::<E>() | infinity,
        Class::Nan => infinity | 1 << (E::PRECISION - 2),
    }
}

const fn infinity<E: Element>() -> u64 {
    ((1 << E::EXPONENT_BITS) - 1) << (E::PRECISION - 1)
}

const fn sign<E: Element>() -> u64 {
    1 << (E::PRECISION - 1 + E::EXPONENT_BITS)
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
    let sign = if integer < 0 { sign::<E>() } else { 0 };
    E::from_bits_u64(if integer == 0 { 0 } else { bits.min(infinity::<E>()) | sign })
}

/// The value that is nearest to a double, which is not a NaN. Below the normal numbers of a format of 16 bits it has to be a sum of that
/// format's values: none has more bits than one of them.
#[inline(always)]
pub(crate) fn from_double<E: Element>(double: f64) -> E {
    E::from_bits_u64(match E::PRECISION {
        f64::PRECISION => double.to_bits(),
        f32::PRECISION => (double as f32).to_bits().into(),
        _ => narrow::<E>(double),
    })
}

/// The bits of that value in a format of 16 bits.
#[inline(always)]
fn narrow<E: Element>(double: f64) -> u64 {
    let power = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << (f64::PRECISION - 1));
    let (normal, unit) = (power(E::SMALLEST + E::PRECISION as i32 - 1), power(-E::SMALLEST));
    let magnitude = double.abs();
    let dropped = f64::PRECISION - E::PRECISION;
    let fields_less = 1023 - (1 << (E::EXPONENT_BITS - 1)) + 1;
    let is_odd = magnitude.to_bits() >> dropped & 1;
    // A carry out of the fraction adds one to the exponent field.
    let rounded = (magnitude.to_bits() + (1 << (dropped - 1)) - 1 + is_odd) >> dropped;
    let bits = if magnitude < normal {
        (magnitude * unit) as i32 as u64
    } else {
        rounded.wrapping_sub(fields_less << (E::PRECISION - 1)).min(infinity::<E>())
    };
    if double.is_sign_negative() { bits | sign::<E>() } else { bits }
}

/// Whether the processor's conversions round integers right whose lowest bit is bit `lowest`, by way of doubles.
pub(crate) fn can_convert<E: Element>(lowest: u32) -> bool {
    let is_normal = lowest >= E::PRECISION - 1;
    let has_unit = lowest as i32 + 64 + E::SMALLEST < f64::MAX_EXP;
    is_normal && has_unit && rounds_to_nearest()
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
