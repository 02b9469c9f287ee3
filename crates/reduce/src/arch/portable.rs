//! Plain Rust, for every processor of the compiled target.
//!
//! The conversions avoid subnormal binary32 operands, so they are right even if a program has its
//! processor flush those to zero.

use super::{Arch, OneFunction, ThreeFunction, TwoFunction, compile};
use crate::body::{One, Three, Two};
use crate::lanes::Lanes;

/// The instruction set that the compiler was told to target.
pub(crate) struct Portable;

impl Arch for Portable {
    type Wide = [f32; LANES];

    fn one<B: One>() -> OneFunction {
        one::<B>
    }

    fn two<B: Two>() -> TwoFunction {
        two::<B>
    }

    fn three<B: Three>() -> ThreeFunction {
        three::<B>
    }
}

compile!();

/// Values handled together. With this many, the compiler keeps their loops and vectorises them; with
/// fewer, it unrolls them first and leaves them scalar.
const LANES: usize = 64;

impl Lanes for [f32; LANES] {
    const COUNT: usize = LANES;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: the contract of `load`: `4 * COUNT` bytes at `at` can be read.
        unsafe { at.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: the contract of `store`: `4 * COUNT` bytes at `at` can be written.
        unsafe { at.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> Self {
        // SAFETY: the contract of `load_f16`: `2 * COUNT` bytes at `at` can be read.
        let halves = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        each_lane(|lane| single_from_f16(halves[lane]))
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u8) {
        let halves = each_lane(|lane| f16_from_single(self[lane]));
        // SAFETY: the contract of `store_f16`: `2 * COUNT` bytes at `at` can be written.
        unsafe { at.cast::<[u16; LANES]>().write_unaligned(halves) }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> Self {
        // SAFETY: the contract of `load_bf16`: `2 * COUNT` bytes at `at` can be read.
        let halves = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        each_lane(|lane| single_from_bf16(halves[lane]))
    }

    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u8) {
        let halves = each_lane(|lane| bf16_from_single(self[lane]));
        // SAFETY: the contract of `store_bf16`: `2 * COUNT` bytes at `at` can be written.
        unsafe { at.cast::<[u16; LANES]>().write_unaligned(halves) }
    }

    #[inline(always)]
    unsafe fn add(self, right: Self) -> Self {
        each_lane(|lane| self[lane] + right[lane])
    }

    #[inline(always)]
    unsafe fn multiply(self, right: Self) -> Self {
        each_lane(|lane| self[lane] * right[lane])
    }

    #[inline(always)]
    unsafe fn min(self, right: Self) -> Self {
        each_lane(|lane| {
            let goes_right = (right[lane] < self[lane]) | right[lane].is_nan();
            if goes_right { right[lane] } else { self[lane] }
        })
    }

    #[inline(always)]
    unsafe fn max(self, right: Self) -> Self {
        each_lane(|lane| {
            let goes_right = (right[lane] > self[lane]) | right[lane].is_nan();
            if goes_right { right[lane] } else { self[lane] }
        })
    }
}

/// One value per lane. A plain loop, because the compiler does not vectorise `array::from_fn`.
#[inline(always)]
fn each_lane<T: Copy + Default>(value: impl Fn(usize) -> T) -> [T; LANES] {
    let mut values = [T::default(); LANES];
    for (lane, slot) in values.iter_mut().enumerate() {
        *slot = value(lane);
    }
    values
}

/// Distance between the exponent biases of binary32 and binary16, in binary32's exponent field.
const REBIAS: u32 = (127 - 15) << 23;

/// Infinity in binary16, without its sign. NaNs are larger.
const F16_INFINITY: u32 = 0x7c00;

/// The quiet bit of a binary32 NaN.
const QUIET: u32 = 1 << 22;

#[inline(always)]
fn single_from_f16(half: u16) -> f32 {
    let magnitude = u32::from(half) & 0x7fff;
    let sign = (u32::from(half) & 0x8000) << 16;
    let normal = (magnitude << 13) + REBIAS;
    // A subnormal is 2^-14 with its fraction appended, minus 2^-14.
    let leading_one = f32::from_bits(REBIAS + (1 << 23));
    let subnormal = (f32::from_bits(normal + (1 << 23)) - leading_one).to_bits();
    let special = (magnitude << 13) + 2 * REBIAS;
    let quiet = if magnitude > F16_INFINITY { QUIET } else { 0 };
    let bits = if magnitude >= F16_INFINITY {
        special | quiet
    } else if magnitude < 0x0400 {
        subnormal
    } else {
        normal
    };
    f32::from_bits(sign | bits)
}

#[inline(always)]
fn f16_from_single(single: f32) -> u16 {
    let magnitude = single.to_bits() & 0x7fff_ffff;
    let sign = (single.to_bits() >> 16) & 0x8000;
    let tie_to_even = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_add(0x0fff + tie_to_even).wrapping_sub(REBIAS) >> 13;
    // The least bit of 0.5 weighs 2^-24, as does that of a subnormal binary16: the addition rounds.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let nan = F16_INFINITY | 0x0200 | ((magnitude >> 13) & 0x03ff);
    let bits = if magnitude > 0x7f80_0000 {
        nan
    } else if magnitude >= 0x477f_f000 {
        F16_INFINITY
    } else if magnitude < REBIAS + (1 << 23) {
        subnormal
    } else {
        normal
    };
    (sign | bits) as u16
}

#[inline(always)]
fn single_from_bf16(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

#[inline(always)]
fn bf16_from_single(single: f32) -> u16 {
    let bits = single.to_bits();
    let tie_to_even = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + tie_to_even);
    let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
    ((if is_nan { bits | QUIET } else { rounded }) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_as_the_reference_does() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits).to_f32_const();
            assert_eq!(single_from_f16(bits).to_bits(), expected.to_bits(), "{bits:#06x}");
            let expected = half::bf16::from_bits(bits).to_f32_const();
            let quieted = if expected.is_nan() { QUIET } else { 0 };
            assert_eq!(single_from_bf16(bits).to_bits() | quieted, expected.to_bits());
        }
    }

    /// Every exponent, with fractions at and next to each rounding border.
    #[test]
    fn singles_round_as_the_reference_does() {
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001] {
                let single = f32::from_bits(u32::from(upper) << 16 | lower);
                let expected = half::f16::from_f32_const(single);
                assert_eq!(f16_from_single(single), expected.to_bits(), "{single:e}");
                let expected = half::bf16::from_f32_const(single);
                assert_eq!(bf16_from_single(single), expected.to_bits(), "{single:e}");
            }
        }
    }
}
