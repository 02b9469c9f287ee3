//! Sums and dot products of arrays against accumulators that take one value after the other, and against big integers.

#![allow(clippy::unwrap_used, reason = "a test may unwrap, its helpers too")]
#![cfg(feature = "std")]

mod support;

use num_bigint::BigInt;
use rand_pcg::Pcg64Mcg;
use support::{Kind, Oracle, vector};
use tributary_exact::{
    Accumulator, ArrayElement, Element, Format, Isa, LengthsDiffer, Products, exact_dot, exact_sum,
};

const KINDS: [Kind; 9] = Kind::ALL;

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn check_sums<E: ArrayElement>(seed: u128)
where
    Products<E>: Format<Rounded = E>,
{
    let mut random = Pcg64Mcg::new(seed);
    for round in 0..90 {
        let kind = KINDS[round % KINDS.len()];
        let count = [0, 1, 15, 16, 17, 2047, 2048, 2049, 4500, 5000][round % 10];
        let values: Vec<E> = vector(kind, count, &mut random);
        let mut oracle = Oracle::new();
        values.iter().for_each(|&value| oracle.add(value));
        let place = format!("seed {seed} round {round} {kind:?} {count}");
        assert_eq!(exact_sum(&values).to_bits_u64(), oracle.round::<E>(), "{place}");
        let mut one_by_one = Accumulator::<E>::default();
        values.iter().for_each(|&value| one_by_one.add(value));
        for isa in isas() {
            let mut sum = Accumulator::<E>::default();
            sum.add_array(isa, &values);
            assert_eq!(sum.to_window(), one_by_one.to_window(), "{place} {isa:?}");
        }
    }
}

#[test]
fn sums_of_arrays_are_those_of_the_oracle() {
    check_sums::<f64>(1);
    check_sums::<f32>(2);
}

/// Factors whose products span few exponents, many, underflow, overflow, or are special.
fn check_dots<E: ArrayElement>(seed: u128)
where
    Products<E>: Format<Rounded = E>,
{
    let mut random = Pcg64Mcg::new(seed);
    for round in 0..162 {
        let (kind, other) = (KINDS[round % 9], KINDS[round / 9 % 9]);
        let count = [1, 16, 33, 2048, 2500][round % 5];
        let left: Vec<E> = vector(kind, count, &mut random);
        let right: Vec<E> = vector(other, count, &mut random);
        let mut one_by_one = Accumulator::<Products<E>>::default();
        left.iter().zip(&right).for_each(|(&left, &right)| one_by_one.add_product(left, right));
        let place = format!("seed {seed} round {round} {kind:?} {other:?} {count}");
        for isa in isas() {
            let mut sum = Accumulator::<Products<E>>::default();
            sum.add_products(isa, &left, &right).unwrap();
            assert_eq!(sum.to_window(), one_by_one.to_window(), "{place} {isa:?}");
        }
        if one_by_one.class() == tributary_exact::Class::Finite {
            let result = one_by_one.round().to_bits_u64();
            assert_eq!(result, rounded_products(&left, &right), "{place}");
        }
    }
}

/// The bits of the sum of products, by big integers. Products are in units of the square of the smallest value.
fn rounded_products<E: Element + Format<Rounded = E>>(left: &[E], right: &[E]) -> u64 {
    let product = |(&left, &right): (&E, &E)| support::integer(left) * support::integer(right);
    let sum: BigInt = left.iter().zip(right).map(product).sum();
    let is_negative = sum < BigInt::ZERO;
    let magnitude = if is_negative { -sum } else { sum };
    // Values come to the unit of products; a half of the smallest is a whole number there.
    let bits = support::nearest_scaled::<E>(&magnitude, (-E::SMALLEST) as u64);
    bits | u64::from(is_negative) << (E::PRECISION - 1 + E::EXPONENT_BITS)
}

#[test]
fn dots_of_arrays_are_those_of_the_oracle() {
    check_dots::<f64>(3);
    check_dots::<f32>(4);
}

#[test]
fn residues_far_below_a_blocks_largest_value_are_kept() {
    for exponent in [1, 40, 47, 48, 92, 93, 94, 200, 280, 283, 600, 1000] {
        let tiny = 2_f64.powi(-exponent);
        let mut values = vec![tiny; 2048];
        (values[5], values[2000]) = (1.0, -1.0);
        assert_eq!(exact_sum(&values), 2046.0 * tiny, "2^-{exponent}");
        let ones = vec![1.0; 2048];
        assert_eq!(exact_dot(&values, &ones), Ok(2046.0 * tiny), "2^-{exponent}");
    }
}

#[test]
fn full_blocks_of_the_largest_pieces_round_nowhere() {
    // Every bit of every value is set, all of one sign: the longest sums that a lane can have.
    for values in [[f64::from_bits(0x3fff_ffff_ffff_ffff); 2048], [-2.0 + f64::EPSILON; 2048]] {
        assert_eq!(exact_sum(&values), values[0] * 2048.0);
    }
}

#[test]
fn arrays_of_different_lengths_have_no_dot_product() {
    assert_eq!(exact_dot(&[1.0], &[1.0, 2.0]), Err(LengthsDiffer { left: 1, right: 2 }));
}

/// A thread whose processor flushes subnormals or rounds upward sums as others do.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_threads_floating_point_mode_changes_nothing() {
    use core::arch::asm;
    let values = vec![f64::from_bits(3); 2048];
    let mixed: Vec<f64> = (1..=2048).map(|at| 1.0 / f64::from(at)).collect();
    let expected = [exact_sum(&values), exact_sum(&mixed)].map(f64::to_bits);
    assert_eq!(expected[0], 3 * 2048);
    let default = 0x1f80_u32;
    let rounds_up = default | 0x4000;
    let flushes = default | 0x8040;
    for mode in [rounds_up, flushes] {
        // SAFETY: the value is a valid MXCSR, and the default one is back before other code runs.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const mode) };
        let sums = [exact_sum(&values), exact_sum(&mixed)].map(f64::to_bits);
        // SAFETY: as above.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const default) };
        assert_eq!(sums, expected, "mode {mode:#x}");
    }
}
