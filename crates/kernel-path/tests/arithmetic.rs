//! Goal: the program combines elements to the same bits as the process. Method: sums of floats against
//! this processor's own, over every pair of exponents and then random ones; every operation that the
//! program takes against `tributary_reduce`'s oracle, over random words; minima and maxima and NaN
//! likewise.
//!
//! `TRIBUTARY_ARITHMETIC_PAIRS` sets the number of random pairs per type of float.

use std::hint::black_box;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_kernel_path::coverage::{self, Fold};
use tributary_kernel_path::user_space::combine;
use tributary_reduce::{Accumulation, oracle};
use tributary_wire::{Datatype, Operator};

const PAIRS: u64 = 2_000_000;
const WORDS: u64 = 20_000;

fn pairs() -> u64 {
    let pairs = std::env::var("TRIBUTARY_ARITHMETIC_PAIRS");
    pairs.map_or(PAIRS, |text| text.parse().expect("a number of pairs"))
}

/// A fraction: often all zeros, all ones, or one bit, where roundings meet their ties.
fn fraction(random: &mut impl Rng, bits: u32) -> u64 {
    let any = random.random::<u64>() & ((1 << bits) - 1);
    match random.random_range(0..8) {
        0 => 0,
        1 => (1 << bits) - 1,
        2 => 1 << random.random_range(0..bits),
        3 => any & (any >> 7) & (any << 3) & ((1 << bits) - 1),
        _ => any,
    }
}

fn check_f32(left: u64, right: u64) {
    let sum = combine(Operator::Sum, Datatype::F32, left | right << 32, right | left << 32);
    let [left, right] = [left as u32, right as u32];
    let expected = |left, right| black_box(f32::from_bits(left)) + black_box(f32::from_bits(right));
    for (got, left, right) in [(sum as u32, left, right), ((sum >> 32) as u32, right, left)] {
        let expected = expected(left, right).to_bits();
        if f32::from_bits(left).is_nan() && f32::from_bits(right).is_nan() {
            // Which one the processor keeps depends on how the compiler orders operands.
            assert_eq!(got, left | 1 << 22, "{left:08x} + {right:08x}");
        } else {
            assert_eq!(got, expected, "{left:08x} + {right:08x}: {got:08x}, not {expected:08x}");
        }
    }
}

fn check_f64(left: u64, right: u64) {
    let got = combine(Operator::Sum, Datatype::F64, left, right);
    let expected = (black_box(f64::from_bits(left)) + black_box(f64::from_bits(right))).to_bits();
    if f64::from_bits(left).is_nan() && f64::from_bits(right).is_nan() {
        assert_eq!(got, left | 1 << 51, "{left:016x} + {right:016x}");
    } else {
        assert_eq!(got, expected, "{left:016x} + {right:016x}: {got:016x}, not {expected:016x}");
    }
}

/// Checks every pair of exponents with every pair of signs, and then random pairs whose exponents lie
/// near each other.
fn check_sums(seed: u64, exponents: u64, fraction_bits: u32, signs: u64, check: fn(u64, u64)) {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut number = |exponent: u64, sign: u64| {
        (sign * exponents + exponent) << fraction_bits | fraction(&mut random, fraction_bits)
    };
    for left in 0..exponents {
        for right in 0..exponents {
            for sign in 0..signs {
                let sign = if signs == 1 { left ^ right } else { sign };
                check(number(left, sign & 1), number(right, sign >> 1 & 1));
            }
        }
    }
    let mut random = Pcg64::seed_from_u64(seed + 1);
    for _ in 0..pairs() {
        let exponent = random.random_range(0..exponents);
        let distance = random.random_range(0..u64::from(2 * fraction_bits + 8));
        let other = (exponent + exponents + distance - u64::from(fraction_bits) - 4) % exponents;
        let mut number = |exponent: u64| {
            let sign = random.random_range(0..2);
            (sign * exponents + exponent) << fraction_bits | fraction(&mut random, fraction_bits)
        };
        check(number(exponent), number(other));
    }
}

#[test]
fn sums_of_binary32() {
    check_sums(1, 256, 23, 4, check_f32);
    println!("binary32: {} exponent pairs, {} random pairs", 4 * 256 * 256, pairs());
}

#[test]
fn sums_of_binary64() {
    check_sums(2, 2048, 52, 1, check_f64);
    println!("binary64: {} exponent pairs, {} random pairs", 2048 * 2048, pairs());
}

#[test]
fn every_operation_against_the_oracle() {
    let mut random = Pcg64::seed_from_u64(3);
    for operator in Operator::ALL {
        for datatype in Datatype::ALL {
            if coverage::fold(operator, datatype, 1, 2) != Some(Fold::InKernel) {
                continue;
            }
            for _ in 0..WORDS {
                let [left, right] = words(&mut random, operator, datatype);
                let mut expected = left.to_le_bytes();
                oracle::fold(operator, datatype, &mut expected, &right.to_le_bytes());
                let got = combine(operator, datatype, left, right);
                let name = format!("{} of {}", operator.name(), datatype.name());
                let expected = u64::from_le_bytes(expected);
                assert_eq!(got, expected, "{name}: {left:016x}, {right:016x}");
            }
        }
    }
}

/// Two words: of any bits, of small numbers, or with the same elements. Sums of floats get no NaN: the
/// oracle's operands are in the compiler's order.
fn words(random: &mut impl Rng, operator: Operator, datatype: Datatype) -> [u64; 2] {
    let mut word = || loop {
        let word = match random.random_range(0..4) {
            0 => random.random::<u64>() & 0x8101_0101_8101_0181,
            1 => random.random::<u64>() & 0x8000_0001_8000_0001,
            _ => random.random(),
        };
        let bytes = word.to_le_bytes();
        let single = |at| f32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"));
        let has_nan = match datatype {
            Datatype::F32 => single(0).is_nan() || single(4).is_nan(),
            Datatype::F64 => f64::from_bits(word).is_nan(),
            _ => false,
        };
        if !(has_nan && operator == Operator::Sum) {
            return word;
        }
    };
    let left = word();
    [left, if random_is_same(left) { left } else { word() }]
}

fn random_is_same(word: u64) -> bool {
    word.is_multiple_of(16)
}

#[test]
fn a_nan_is_kept_as_the_process_keeps_it() {
    for elements in 1..40_usize {
        let left = vec![f32::from_bits(0x7f80_0001); elements];
        let right = vec![f32::from_bits(0xffc0_0002); elements];
        let bytes =
            |floats: &[f32]| floats.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>();
        let mut sum = bytes(&left);
        let accumulation = Accumulation::new(Operator::Sum, Datatype::F32).expect("it is defined");
        accumulation.fold(&mut sum, &bytes(&right));
        for element in sum.chunks_exact(4) {
            assert_eq!(element, 0x7fc0_0001_u32.to_le_bytes(), "of {elements} elements");
        }
    }
}
