//! Sums of several vectors that lie in one memory, element by element.
//!
//! Most blocks are summed as pairs of doubles: a sum, and the sum of all errors of its additions; values that are shorter than doubles first
//! as if there were no errors. Where the errors, or what is infinite or no number, need more, lanes of a layout for this block take
//! its place, and accumulators where exponents lie far apart. All give the same results.

use core::ops::Range;

use crate::accumulator::Accumulator;
use crate::class::Class;
use crate::format::{Element, Format};
use crate::isa::{Isa, Loop};
use crate::lanes::Layout;
use crate::mode::adds_as_ieee;
use crate::rounding::{bits_of_class, from_double};
use crate::span::Span;

/// Values of a block: few, so that one that takes lanes does not make many others take them, and that sums stay in the first cache.
const BLOCK: usize = 64;
/// Values of a vector that is summed at once in a block of its own, whose sums take no longer to clear than to make.
const SHORT_BLOCK: usize = 4;
const LANES: usize = BLOCK * Layout::DIRECT_LANES_MAX;

/// Writes the rounded sums of `count` vectors, one at least. `values` gives a range of one of them.
pub fn sum_vectors<'a, E: Element + Format<Rounded = E>>(
    target: &mut [E],
    count: u32,
    values: impl Fn(u32, Range<usize>) -> &'a [E],
) {
    let (has_doubles, isa) = (adds_as_ieee(), Isa::for_values(target.len()));
    let mut first = 0;
    for block in target.chunks_mut(BLOCK) {
        let range = first..first + block.len();
        first = range.end;
        let parts = (0..count).map(|at| values(at, range.clone()));
        if !(has_doubles && sum_as_doubles(isa, block, parts.clone())) {
            sum_as_lanes(isa, block, count, parts);
        }
    }
}

/// Sums the parts as doubles. `false`, and no results, if that is not exact.
fn sum_as_doubles<'a, E: Element>(
    isa: Isa,
    target: &mut [E],
    parts: impl Iterator<Item = &'a [E]> + Clone,
) -> bool {
    let is_short = E::PRECISION < f64::PRECISION;
    if target.len() <= SHORT_BLOCK {
        // For so few values, a first attempt without errors costs as much as the errors do.
        return isa.run(SumAsDoubles::<_, _, SHORT_BLOCK, true> { target, parts });
    }
    is_short && isa.run(SumAsDoubles::<_, _, BLOCK, false> { target, parts: parts.clone() })
        || isa.run(SumAsDoubles::<_, _, BLOCK, true> { target, parts })
}

/// Writes the rounded sums of two vectors. One addition rounds once, as an exact sum does; that of a longer type before
/// that of 16 bits changes nothing.
pub fn sum_two<E: Element + Format<Rounded = E>>(target: &mut [E], left: &[E], right: &[E]) {
    if adds_as_ieee() {
        Isa::for_values(target.len()).run(SumOfTwo { target, left, right });
    } else {
        sum_vectors(target, 2, |at, range| if at == 0 { &left[range] } else { &right[range] });
    }
}

struct SumOfTwo<'a, E> {
    target: &'a mut [E],
    left: &'a [E],
    right: &'a [E],
}

impl<E: Element> Loop for SumOfTwo<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let nan = E::from_bits_u64(bits_of_class::<E>(Class::Nan));
        for ((sum, &left), &right) in self.target.iter_mut().zip(self.left).zip(self.right) {
            *sum = add_two(left, right, nan);
        }
    }
}

#[inline(always)]
fn add_two<E: Element>(left: E, right: E, nan: E) -> E {
    if E::PRECISION == f32::PRECISION {
        let single = |value: E| f32::from_bits(value.to_bits_u64() as u32);
        let sum = single(left) + single(right);
        return if sum.is_nan() { nan } else { E::from_bits_u64(sum.to_bits().into()) };
    }
    let sum = to_double(left) + to_double(right);
    if sum.is_nan() { nan } else { round(sum, 0.0) }
}

/// Sums the parts as doubles, with `ERRORS` that are summed, or where there are none. The output is `false`, and the results
/// are of no use, if the sums are not exact.
struct SumAsDoubles<'t, E, P, const SIZE: usize, const ERRORS: bool> {
    target: &'t mut [E],
    parts: P,
}

impl<'a, E: Element, P: Iterator<Item = &'a [E]>, const SIZE: usize, const ERRORS: bool> Loop
    for SumAsDoubles<'_, E, P, SIZE, ERRORS>
{
    type Output = bool;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> bool {
        let Self { target, mut parts } = self;
        let (mut sums, mut errors) = ([0.0; SIZE], [0.0; SIZE]);
        let (sums, errors) = (&mut sums[..target.len()], &mut errors[..target.len()]);
        let Some(part) = parts.next() else { return false };
        for (sum, &value) in sums.iter_mut().zip(part) {
            *sum = to_double(value);
        }
        let mut lost = 0;
        for part in parts {
            for ((sum, error), &value) in sums.iter_mut().zip(&mut *errors).zip(part) {
                let (more, rest);
                (*sum, more) = add(*sum, to_double(value));
                (*error, rest) = if ERRORS { add(*error, more) } else { (0.0, more) };
                // Zero has either sign. A NaN is what comes of an infinity, too.
                lost |= rest.to_bits() << 1;
            }
        }
        for ((value, &sum), &error) in target.iter_mut().zip(&*sums).zip(&*errors) {
            *value = round(sum, error);
            // Of one part nothing was added that would have shown it.
            lost |= u64::from(!sum.is_finite());
        }
        lost == 0
    }
}

/// The rounded sum, and what rounding has taken from it; a NaN if a number or their sum is not finite.
#[inline(always)]
fn add(left: f64, right: f64) -> (f64, f64) {
    let sum = left + right;
    let of_right = sum - left;
    let of_left = sum - of_right;
    (sum, (left - of_left) + (right - of_right))
}

/// The value as a double.
#[inline(always)]
fn to_double<E: Element>(value: E) -> f64 {
    let bits = value.to_bits_u64();
    match E::PRECISION {
        f64::PRECISION => f64::from_bits(bits),
        f32::PRECISION => f64::from(f32::from_bits(bits as u32)),
        _ => widen::<E>(bits),
    }
}

/// A value of 16 bits as a double, of which it takes the topmost bits of the fraction: with the exponent of another one, which
/// a multiplication sets right.
#[inline(always)]
fn widen<E: Element>(bits: u64) -> f64 {
    let sign = bits_of_class::<E>(Class::NegativeZero);
    let magnitude = bits & !sign;
    let scale =
        f64::from_bits((2046 - ((1 << (E::EXPONENT_BITS - 1)) - 1)) << (f64::PRECISION - 1));
    let scaled = f64::from_bits(magnitude << (f64::PRECISION - E::PRECISION)) * scale;
    let infinity = bits_of_class::<E>(Class::PositiveInfinity);
    let special = if magnitude == infinity { f64::INFINITY } else { f64::NAN };
    let unsigned = if magnitude < infinity { scaled } else { special };
    f64::from_bits(unsigned.to_bits() | (bits & sign) << (63 - sign.trailing_zeros()))
}

/// The rounded value of a sum and its errors, all finite.
#[inline(always)]
fn round<E: Element>(sum: f64, error: f64) -> E {
    // A sum without an error keeps the sign of its zero.
    let (whole, rest) = if error == 0.0 { (sum, 0.0) } else { add(sum, error) };
    if E::PRECISION == f64::PRECISION {
        return from_double(whole);
    }
    // Of a sum that is longer than a double, the lowest bit is set in the double below or above it, so that the result is rounded once.
    let is_below = (rest < 0.0) == (whole > 0.0);
    let is_even = whole.to_bits() & 1 == 0;
    let odd = if is_below { whole.to_bits().wrapping_sub(1) } else { whole.to_bits() | 1 };
    let once = f64::from_bits(if rest != 0.0 && is_even { odd } else { whole.to_bits() });
    from_double(once)
}

/// Sums the parts as lanes, or in accumulators if their exponents lie far apart.
#[cold]
fn sum_as_lanes<'a, E: Element + Format<Rounded = E>>(
    isa: Isa,
    target: &mut [E],
    count: u32,
    parts: impl Iterator<Item = &'a [E]> + Clone,
) {
    let mut lanes = [0_i64; LANES];
    let span = parts.clone().fold(Span::EMPTY, |span, part| span.join(Span::of_with(isa, part)));
    let layout = Layout::new::<E>(span, count);
    if let Some(wanted) = layout.direct_lanes(target.len()) {
        let lanes = &mut lanes[..wanted];
        parts.for_each(|part| layout.add_with(isa, part, lanes));
        return layout.read_with(isa, lanes, target);
    }
    for (at, sum) in target.iter_mut().enumerate() {
        let mut all = Accumulator::<E>::default();
        parts.clone().for_each(|part| all.add(part[at]));
        *sum = all.round();
    }
}
