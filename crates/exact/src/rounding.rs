//! The one rounding of a sum: to nearest, ties to even.

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
