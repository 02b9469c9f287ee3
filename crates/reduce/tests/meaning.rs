//! The meaning of operators, by hand-written examples that check the oracle as well.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use tributary_reduce::{
    Accumulation, Kernel, accumulator_bytes, accumulator_bytes_max, combine_into, fold, oracle,
};
use tributary_wire::{Datatype, Operator};

/// `left OP right` by the kernel, which must be the oracle's result too.
fn apply(operator: Operator, datatype: Datatype, left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut by_kernel = left.to_vec();
    fold(operator, datatype, &mut by_kernel, right);
    let mut by_oracle = left.to_vec();
    oracle::fold(operator, datatype, &mut by_oracle, right);
    assert_eq!(by_kernel, by_oracle);
    by_kernel
}

fn apply_f32(operator: Operator, left: f32, right: f32) -> f32 {
    let result = apply(operator, Datatype::F32, &left.to_le_bytes(), &right.to_le_bytes());
    f32::from_le_bytes(result.try_into().unwrap())
}

fn apply_i32(operator: Operator, left: i32, right: i32) -> i32 {
    let result = apply(operator, Datatype::I32, &left.to_le_bytes(), &right.to_le_bytes());
    i32::from_le_bytes(result.try_into().unwrap())
}

fn pair_i16(value: i16, index: i32, padding: u8) -> Vec<u8> {
    let mut pair = value.to_le_bytes().to_vec();
    pair.extend([padding; 2]);
    pair.extend(index.to_le_bytes());
    pair
}

fn pair_f64(value: f64, index: i32, padding: u8) -> Vec<u8> {
    let mut pair = value.to_le_bytes().to_vec();
    pair.extend(index.to_le_bytes());
    pair.extend([padding; 4]);
    pair
}

#[test]
fn integers_wrap() {
    assert_eq!(apply_i32(Operator::Sum, i32::MAX, 1), i32::MIN);
    assert_eq!(apply_i32(Operator::Product, i32::MIN, -1), i32::MIN);
    assert_eq!(apply(Operator::Sum, Datatype::U8, &[200], &[100]), [44]);
    assert_eq!(apply(Operator::Product, Datatype::I8, &[0x80], &[0xff]), [0x80]);
}

#[test]
fn min_and_max_know_signs() {
    assert_eq!(apply_i32(Operator::Min, -1, 1), -1);
    assert_eq!(apply_i32(Operator::Max, -1, 1), 1);
    assert_eq!(apply(Operator::Min, Datatype::U8, &[0xff], &[1]), [1]);
    assert_eq!(apply(Operator::Min, Datatype::I8, &[0xff], &[1]), [0xff]);
}

#[test]
fn logical_operators_give_one_or_zero() {
    for (left, right) in [(0, 0), (0, 5), (-3, 0), (2, 4)] {
        let (a, b) = (left != 0, right != 0);
        assert_eq!(apply_i32(Operator::LogicalAnd, left, right), i32::from(a && b));
        assert_eq!(apply_i32(Operator::LogicalOr, left, right), i32::from(a || b));
        assert_eq!(apply_i32(Operator::LogicalXor, left, right), i32::from(a != b));
    }
}

#[test]
fn bitwise_operators_take_every_bit() {
    assert_eq!(apply_i32(Operator::BitAnd, 0b1100, 0b1010), 0b1000);
    assert_eq!(apply_i32(Operator::BitOr, 0b1100, 0b1010), 0b1110);
    assert_eq!(apply_i32(Operator::BitXor, 0b1100, 0b1010), 0b0110);
}

#[test]
fn min_and_max_keep_the_left_operand_where_neither_is_smaller() {
    for operator in [Operator::Min, Operator::Max] {
        assert!(apply_f32(operator, -0.0, 0.0).is_sign_negative());
        assert!(apply_f32(operator, 0.0, -0.0).is_sign_positive());
    }
}

/// In whatever groups contributions are combined.
#[test]
fn a_nan_makes_the_minimum_and_the_maximum_a_nan() {
    for operator in [Operator::Min, Operator::Max] {
        assert!(apply_f32(operator, f32::NAN, 1.0).is_nan());
        assert!(apply_f32(operator, 1.0, f32::NAN).is_nan());
        let [first, second] = [f32::from_bits(0x7fc0_0001), f32::from_bits(0xffc0_0002)];
        assert_eq!(apply_f32(operator, first, second).to_bits(), second.to_bits());
        for numbers in [[1.0, f32::NAN, 0.0], [f32::NAN, 2.0, 3.0], [2.0, 3.0, f32::NAN]] {
            let [a, b, c] = numbers;
            assert!(apply_f32(operator, apply_f32(operator, a, b), c).is_nan(), "{numbers:?}");
            assert!(apply_f32(operator, a, apply_f32(operator, b, c)).is_nan(), "{numbers:?}");
        }
    }
}

#[test]
fn a_located_nan_is_taken_before_every_number_and_the_one_with_the_smaller_index_before_others() {
    for operator in [Operator::MinLoc, Operator::MaxLoc] {
        let (number, near, far) =
            (pair_f64(-7.5, 1, 0), pair_f64(f64::NAN, 2, 0), pair_f64(f64::NAN, 9, 0));
        for (left, right, expected) in [
            (&number, &near, &near),
            (&near, &number, &near),
            (&near, &far, &near),
            (&far, &near, &near),
        ] {
            assert_eq!(&apply(operator, Datatype::F64Index, left, right), expected);
        }
        let (number, nan) = (float_pair(-2.5, 3.0), float_pair(f32::NAN, 4.0));
        assert_eq!(apply(operator, Datatype::F32FloatIndex, &number, &nan), nan);
        assert_eq!(apply(operator, Datatype::F32FloatIndex, &nan, &number), nan);
    }
}

#[test]
fn ties_take_the_smaller_index_whichever_side_it_is_on() {
    for operator in [Operator::MinLoc, Operator::MaxLoc] {
        let (near, far) = (pair_i16(-4, 2, 0), pair_i16(-4, 9, 0));
        assert_eq!(apply(operator, Datatype::I16Index, &near, &far), near);
        assert_eq!(apply(operator, Datatype::I16Index, &far, &near), near);
    }
}

#[test]
fn located_values_bring_their_index_and_zero_the_padding() {
    let (low, high) = (pair_i16(-7, 30, 0xee), pair_i16(5, 1, 0xee));
    assert_eq!(apply(Operator::MinLoc, Datatype::I16Index, &high, &low), pair_i16(-7, 30, 0));
    assert_eq!(apply(Operator::MaxLoc, Datatype::I16Index, &low, &high), pair_i16(5, 1, 0));
    let (low, high) = (pair_f64(-7.5, 30, 0xee), pair_f64(5.0, 1, 0xee));
    assert_eq!(apply(Operator::MinLoc, Datatype::F64Index, &low, &high), pair_f64(-7.5, 30, 0));
    assert_eq!(apply(Operator::MaxLoc, Datatype::F64Index, &high, &low), pair_f64(5.0, 1, 0));
}

fn float_pair(value: f32, index: f32) -> Vec<u8> {
    [value, index].map(f32::to_le_bytes).concat()
}

#[test]
fn an_index_may_be_a_float() {
    let (low, high) = (float_pair(-2.5, 3.0), float_pair(4.0, 1.0));
    let low_again = float_pair(-2.5, 2.0);
    let datatype = Datatype::F32FloatIndex;
    assert_eq!(apply(Operator::MinLoc, datatype, &high, &low), low);
    assert_eq!(apply(Operator::MaxLoc, datatype, &low, &high), high);
    assert_eq!(apply(Operator::MinLoc, datatype, &low, &low_again), low_again);
    assert_eq!(apply(Operator::MaxLoc, datatype, &low_again, &low), low_again);
}

fn apply_complex(operator: Operator, left: [f64; 2], right: [f64; 2]) -> [f64; 2] {
    let bytes = |parts: [f64; 2]| parts.map(f64::to_le_bytes).concat();
    let result = apply(operator, Datatype::F64Complex, &bytes(left), &bytes(right));
    [0, 8].map(|at| f64::from_le_bytes(result[at..at + 8].try_into().unwrap()))
}

#[test]
fn complex_numbers_add_and_multiply() {
    assert_eq!(apply_complex(Operator::Sum, [1.0, 2.0], [3.0, -5.0]), [4.0, -3.0]);
    assert_eq!(apply_complex(Operator::Product, [1.0, 2.0], [3.0, -5.0]), [13.0, 1.0]);
    // (1 + e)^2 - 1 with one rounding would be 2 e + e^2: each product is rounded by itself.
    let near_one = 1.0 + f64::EPSILON;
    let product = apply_complex(Operator::Product, [near_one, 1.0], [near_one, 1.0]);
    assert_eq!(product, [2.0 * f64::EPSILON, 2.0 * near_one]);
}

/// Each would be NaN in both parts by the plain formula. The results are those of C's `*`.
#[test]
fn infinite_complex_products_are_recovered() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    let product = |left, right| apply_complex(Operator::Product, left, right);
    assert_eq!(product([INF, INF], [1.0, 1.0])[1], INF);
    assert_eq!(product([INF, NAN], [1.0, 2.0]), [INF, INF]);
    assert_eq!(product([2.0, 3.0], [NAN, -INF]), [INF, -INF]);
    assert_eq!(product([INF, NAN], [NAN, INF])[1], INF);
    // Finite numbers whose products overflow, with a NaN.
    assert_eq!(product([f64::MAX, NAN], [f64::MAX, 2.0]), [INF, INF]);
    for nothing_to_recover in [product([NAN, NAN], [1.0, 1.0]), product([1.0, NAN], [NAN, 1.0])] {
        assert!(nothing_to_recover.iter().all(|part| part.is_nan()));
    }
}

/// 2048 + 1 is not a binary16 value: with a rounding after every addition, the sum stays at 2048.
#[test]
fn an_accumulation_rounds_once_where_folding_rounds_each_time() {
    let (large, one) = (0x6800u16.to_le_bytes(), 0x3c00u16.to_le_bytes());
    let mut folded = large;
    let mut accumulator = [0; 4];
    let accumulation = Accumulation::new(Operator::Sum, Datatype::F16).unwrap();
    accumulation.begin(&mut accumulator, &large);
    for _ in 0..4 {
        accumulation.kernel().fold(&mut folded, &one);
        accumulation.fold(&mut accumulator, &one);
    }
    assert_eq!(u16::from_le_bytes(folded), 0x6800);
    assert_eq!(accumulation.finish(&mut accumulator), 0x6802u16.to_le_bytes());
}

#[test]
fn order_decides_the_bits_of_a_float_sum() {
    let values = [1.0e8f32, 1.0, -1.0e8];
    let forwards =
        apply_f32(Operator::Sum, apply_f32(Operator::Sum, values[0], values[1]), values[2]);
    let backwards =
        apply_f32(Operator::Sum, apply_f32(Operator::Sum, values[0], values[2]), values[1]);
    assert_eq!(forwards, 0.0);
    assert_eq!(backwards, 1.0);
}

#[test]
fn accumulators_fit_the_reserved_memory() {
    for datatype in Datatype::ALL {
        for elements in [0, 1, 100] {
            let contribution_bytes = elements * datatype.size_bytes();
            let need_bytes = accumulator_bytes(datatype, elements);
            assert!(need_bytes >= contribution_bytes);
            assert!(need_bytes <= accumulator_bytes_max(contribution_bytes));
        }
    }
}

#[test]
fn the_free_functions_are_the_kernels() {
    let (left, right) = ([1u8, 2, 3], [10u8, 20, 30]);
    let mut result = [0; 3];
    combine_into(Operator::Sum, Datatype::U8, &mut result, &left, &right);
    assert_eq!(result, [11, 22, 33]);
}

#[test]
#[should_panic(expected = "must have the same length")]
fn lengths_that_differ_panic() {
    fold(Operator::Sum, Datatype::U8, &mut [0; 3], &[0; 4]);
}

#[test]
#[should_panic(expected = "length of its operands")]
fn a_result_of_another_length_panics() {
    combine_into(Operator::Sum, Datatype::U8, &mut [0; 3], &[0; 4], &[0; 4]);
}

#[test]
#[should_panic(expected = "not a whole number")]
fn a_broken_element_panics() {
    let kernel = Kernel::new(Operator::Sum, Datatype::F32).unwrap();
    kernel.fold(&mut [0; 6], &[0; 6]);
}

#[test]
#[should_panic(expected = "does not combine")]
fn an_undefined_combination_panics() {
    fold(Operator::BitAnd, Datatype::F32, &mut [0; 4], &[0; 4]);
}

#[test]
#[should_panic(expected = "the length that its datatype requires")]
fn an_accumulator_too_short_panics() {
    let accumulation = Accumulation::new(Operator::Sum, Datatype::Bf16).unwrap();
    accumulation.begin(&mut [0; 6], &[0; 6]);
}
