//! The bodies of the kernels: plain loops over lanes, which are compiled once for every instruction set.

use crate::isa::Loop;

/// Values in a block: two blocks and their products stay in the first cache.
pub(super) const BLOCK: usize = 2048;

/// Values that are treated side by side.
pub(super) const LANES: usize = 16;

/// The most cuts that are tried.
const CUTS_MAX: usize = 6;

/// How far above the values' exponent a cutter's is. A lane adds at most 2^7 values, each of at most 2^m: their sum is at
/// most 2^(m+7) and a multiple of 2^(m+6-52), so its 53 bits hold it without rounding.
const CUTTER_ABOVE: i32 = 6;

/// By how much a cut lowers the exponent that bounds what is left: half a unit of the cutter.
const CUT_BITS: i32 = 53 - CUTTER_ABOVE;

const EXPONENT_BIAS: i32 = 1023;
const FRACTION_BITS: u32 = 52;
const INFINITY: u64 = 0x7ff << FRACTION_BITS;

/// What a block has between two cuts, by lane.
pub(super) struct BlockSums {
    sums: [[f64; LANES]; CUTS_MAX],
    cuts: usize,
}

impl BlockSums {
    pub(super) fn new() -> Self {
        Self { sums: [[0.0; LANES]; CUTS_MAX], cuts: 0 }
    }

    pub(super) fn filled_lanes(&self) -> &[[f64; LANES]] {
        &self.sums[..self.cuts]
    }
}

/// Sums a block of a multiple of [`LANES`] values. `false` if it holds no finite value but zeros, or too many exponents.
pub(super) struct SumOf<'a> {
    pub(super) values: &'a [f64],
    pub(super) sums: &'a mut BlockSums,
}

impl Loop for SumOf<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> bool {
        sum(self.values, self.sums)
    }
}

/// Products as a sum of two values each. Whether all are exact.
pub(super) struct ProductsOf<'a> {
    pub(super) left: &'a [f64],
    pub(super) right: &'a [f64],
    pub(super) high: &'a mut [f64],
    pub(super) low: &'a mut [f64],
}

impl Loop for ProductsOf<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> bool {
        multiply::<FUSED>(self.left, self.right, self.high, self.low)
    }
}

#[inline(always)]
fn sum(values: &[f64], sums: &mut BlockSums) -> bool {
    let largest = largest_magnitude(values);
    // Values below 2^bound.
    let bound = (largest >> FRACTION_BITS) as i32 - EXPONENT_BIAS + 1;
    let is_cuttable = largest < INFINITY && bound + CUTTER_ABOVE <= EXPONENT_BIAS;
    if largest == 0 || !is_cuttable {
        return false;
    }
    cut::<2>(values, bound, sums) || cut::<CUTS_MAX>(values, bound, sums)
}

/// Cuts every value and adds up the pieces. Whether nothing is left.
#[inline(always)]
fn cut<const CUTS: usize>(values: &[f64], bound: i32, sums: &mut BlockSums) -> bool {
    let cutters: [f64; CUTS] = core::array::from_fn(|at| cutter(bound - CUT_BITS * at as i32));
    let mut pieces = [[0.0; LANES]; CUTS];
    let mut left = [0_u64; LANES];
    for values in values.chunks_exact(LANES) {
        for lane in 0..LANES {
            let mut rest = values[lane];
            for at in 0..CUTS {
                // The addition rounds to the cutter's unit. Both differences are exact.
                let piece = (cutters[at] + rest) - cutters[at];
                pieces[at][lane] += piece;
                rest -= piece;
            }
            left[lane] |= rest.to_bits();
        }
    }
    sums.sums[..CUTS].copy_from_slice(&pieces);
    sums.cuts = CUTS;
    // A zero that is left may have either sign.
    left.iter().all(|&left| left << 1 == 0)
}

/// One and a half times a power of two: adding values of either sign leaves its exponent. Below the normal numbers the unit
/// is the smallest subnormal anyway.
fn cutter(bound: i32) -> f64 {
    let field = (bound + CUTTER_ABOVE + EXPONENT_BIAS).max(1) as u64;
    f64::from_bits(field << FRACTION_BITS | 1 << (FRACTION_BITS - 1))
}

/// The bits of the largest magnitude. NaNs are passed over: a cut leaves something of them.
#[inline(always)]
fn largest_magnitude(values: &[f64]) -> u64 {
    let larger = |left: f64, right: f64| if left > right { left } else { right };
    let mut largest = [0.0; LANES];
    for values in values.chunks_exact(LANES) {
        for (largest, value) in largest.iter_mut().zip(values) {
            // The order of the two makes it one instruction, which gives its second operand if the first is a NaN.
            *largest = larger(value.abs(), *largest);
        }
    }
    largest.into_iter().fold(0.0, larger).to_bits()
}

/// Bounds of factors and products between which [`split_product`] is exact: nothing overflows, and the product's lowest bit is
/// above the smallest subnormal.
const LARGEST: f64 = f64::from_bits((EXPONENT_BIAS as u64 + 900) << FRACTION_BITS);
const SMALLEST: f64 = f64::from_bits((EXPONENT_BIAS as u64 - 900) << FRACTION_BITS);

#[inline(always)]
fn multiply<const FUSED: bool>(
    left: &[f64],
    right: &[f64],
    high: &mut [f64],
    low: &mut [f64],
) -> bool {
    let factors = left.chunks_exact(LANES).zip(right.chunks_exact(LANES));
    let results = high.chunks_exact_mut(LANES).zip(low.chunks_exact_mut(LANES));
    let mut wrong = [0_u64; LANES];
    for ((left, right), (high, low)) in factors.zip(results) {
        for lane in 0..LANES {
            let (left, right) = (left[lane], right[lane]);
            let (product, error) =
                if FUSED { fused_product(left, right) } else { split_product(left, right) };
            (high[lane], low[lane]) = (product, error);
            let is_zero = (left == 0.0) | (right == 0.0);
            let is_high_enough = (product.abs() > SMALLEST) | is_zero;
            let is_low_enough =
                (left.abs() < LARGEST) & (right.abs() < LARGEST) & (product.abs() < LARGEST);
            wrong[lane] |= u64::from(!(is_high_enough & is_low_enough));
        }
    }
    wrong.iter().all(|&wrong| wrong == 0)
}

/// A product and its rounding error by the processor's fused operation.
#[inline(always)]
fn fused_product(left: f64, right: f64) -> (f64, f64) {
    let high = left * right;
    (high, left.mul_add(right, -high))
}

/// A product and its rounding error by factors of 26 bits (Dekker and Veltkamp).
#[inline(always)]
fn split_product(left: f64, right: f64) -> (f64, f64) {
    let halves = |value: f64| {
        let scaled = value * 134_217_729.0;
        let high = scaled - (scaled - value);
        (high, value - high)
    };
    let high = left * right;
    let ((left_high, left_low), (right_high, right_low)) = (halves(left), halves(right));
    let rest = left_high * right_high - high + left_high * right_low + left_low * right_high;
    (high, rest + left_low * right_low)
}
