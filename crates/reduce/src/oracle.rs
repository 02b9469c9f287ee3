//! The reference for every kernel, written as plainly as possible.
//!
//! It is scalar code that shares nothing with the kernels, and looks the operator up for each element.
//! Tests compare every kernel with it, bit by bit. The benchmark uses its speed as the baseline.

use half::{bf16, f16};
use tributary_wire::{Datatype, Operator};

/// `target = target OP source`, element by element, as [`crate::Kernel::fold`] defines it.
///
/// # Panics
/// If the lengths differ or don't hold whole elements, or if `operator` does not combine elements
/// of `datatype`.
pub fn fold(operator: Operator, datatype: Datatype, target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len());
    let size_bytes = datatype.size_bytes();
    assert!(target.len().is_multiple_of(size_bytes));
    for first in (0..target.len()).step_by(size_bytes) {
        let element = first..first + size_bytes;
        fold_element(operator, datatype, &mut target[element.clone()], &source[element]);
    }
}

/// All contributions merged in order, as [`crate::Accumulation`] defines it: 16-bit floats are
/// merged as binary32 and rounded once.
///
/// # Panics
/// If there are no contributions, and as [`fold`] does.
#[must_use]
pub fn accumulate(operator: Operator, datatype: Datatype, contributions: &[&[u8]]) -> Vec<u8> {
    let (first, others) = contributions.split_first().expect("there is a contribution");
    match datatype {
        Datatype::F16 => accumulate_halves(
            operator,
            contributions,
            |bytes| f16::from_le_bytes(bytes).to_f32_const(),
            |single| f16::from_f32_const(single).to_le_bytes(),
        ),
        Datatype::Bf16 => accumulate_halves(
            operator,
            contributions,
            |bytes| bf16::from_le_bytes(bytes).to_f32_const(),
            |single| bf16::from_f32_const(single).to_le_bytes(),
        ),
        _ => {
            let mut result = first.to_vec();
            for contribution in others {
                fold(operator, datatype, &mut result, contribution);
            }
            result
        }
    }
}

fn accumulate_halves(
    operator: Operator,
    contributions: &[&[u8]],
    widen: impl Fn([u8; 2]) -> f32,
    round: impl Fn(f32) -> [u8; 2],
) -> Vec<u8> {
    let mut result = Vec::new();
    for first in (0..contributions[0].len()).step_by(2) {
        let element = |bytes: &[u8]| widen([bytes[first], bytes[first + 1]]);
        let mut single = element(contributions[0]);
        for contribution in &contributions[1..] {
            single = single_element(operator, single, element(contribution));
        }
        result.extend(round(single));
    }
    result
}

macro_rules! number {
    ($number:ty, $combine:expr, $operator:ident, $target:ident, $source:ident) => {{
        let left = <$number>::from_le_bytes(array($target));
        let right = <$number>::from_le_bytes(array($source));
        $target.copy_from_slice(&$combine($operator, left, right).to_le_bytes());
    }};
}

macro_rules! pair {
    ($value:ty, $operator:ident, $target:ident, $source:ident) => {
        pair!($value, i32, $operator, $target, $source)
    };
    ($value:ty, $index:ty, $operator:ident, $target:ident, $source:ident) => {{
        let index_at = if size_of::<$value>() == 8 { 8 } else { 4 };
        let index_end = index_at + size_of::<$index>();
        let value_of = |pair: &[u8]| <$value>::from_le_bytes(array(&pair[..size_of::<$value>()]));
        let index_of = |pair: &[u8]| <$index>::from_le_bytes(array(&pair[index_at..index_end]));
        let wins = match $operator {
            Operator::MinLoc => value_of($source) < value_of($target),
            Operator::MaxLoc => value_of($source) > value_of($target),
            _ => panic_undefined($operator),
        };
        // A NaN is unequal to itself.
        let is_nan = |pair: &[u8]| value_of(pair).partial_cmp(&value_of(pair)).is_none();
        let (wins, ties) = match (is_nan($target), is_nan($source)) {
            (true, true) => (false, true),
            (true, false) => (false, false),
            (false, true) => (true, false),
            (false, false) => (wins, value_of($source) == value_of($target)),
        };
        let (value, index) = if wins || (ties && index_of($source) < index_of($target)) {
            (value_of($source), index_of($source))
        } else {
            (value_of($target), index_of($target))
        };
        $target.fill(0);
        $target[..size_of::<$value>()].copy_from_slice(&value.to_le_bytes());
        $target[index_at..index_end].copy_from_slice(&index.to_le_bytes());
    }};
}

macro_rules! complex {
    ($float:ty, $product:ident, $operator:ident, $target:ident, $source:ident) => {{
        let half = size_of::<$float>();
        let parts = |bytes: &[u8]| {
            [0, half].map(|at| <$float>::from_le_bytes(array(&bytes[at..at + half])))
        };
        let (left, right) = (parts($target), parts($source));
        let result = match $operator {
            Operator::Sum => [left[0] + right[0], left[1] + right[1]],
            Operator::Product => $product(left, right),
            _ => panic_undefined($operator),
        };
        $target[..half].copy_from_slice(&result[0].to_le_bytes());
        $target[half..].copy_from_slice(&result[1].to_le_bytes());
    }};
}

fn fold_element(operator: Operator, datatype: Datatype, target: &mut [u8], source: &[u8]) {
    match datatype {
        Datatype::I8 => number!(i8, i8_element, operator, target, source),
        Datatype::I16 => number!(i16, i16_element, operator, target, source),
        Datatype::I32 => number!(i32, i32_element, operator, target, source),
        Datatype::I64 => number!(i64, i64_element, operator, target, source),
        Datatype::U8 => number!(u8, u8_element, operator, target, source),
        Datatype::U16 => number!(u16, u16_element, operator, target, source),
        Datatype::U32 => number!(u32, u32_element, operator, target, source),
        Datatype::U64 => number!(u64, u64_element, operator, target, source),
        Datatype::F16 => number!(f16, f16_element, operator, target, source),
        Datatype::Bf16 => number!(bf16, bf16_element, operator, target, source),
        Datatype::F32 => number!(f32, single_element, operator, target, source),
        Datatype::F64 => number!(f64, double_element, operator, target, source),
        Datatype::I16Index => pair!(i16, operator, target, source),
        Datatype::I32Index => pair!(i32, operator, target, source),
        Datatype::I64Index => pair!(i64, operator, target, source),
        Datatype::F32Index => pair!(f32, operator, target, source),
        Datatype::F64Index => pair!(f64, operator, target, source),
        Datatype::F32Complex => complex!(f32, single_product, operator, target, source),
        Datatype::F64Complex => complex!(f64, double_product, operator, target, source),
        Datatype::F32FloatIndex => pair!(f32, f32, operator, target, source),
        Datatype::F64FloatIndex => pair!(f64, f64, operator, target, source),
    }
}

macro_rules! integer_elements {
    ($($name:ident: $integer:ty;)*) => {$(
        fn $name(operator: Operator, left: $integer, right: $integer) -> $integer {
            match operator {
                Operator::Sum => left.wrapping_add(right),
                Operator::Product => left.wrapping_mul(right),
                Operator::Min => left.min(right),
                Operator::Max => left.max(right),
                Operator::BitAnd => left & right,
                Operator::BitOr => left | right,
                Operator::BitXor => left ^ right,
                Operator::LogicalAnd => <$integer>::from(left != 0 && right != 0),
                Operator::LogicalOr => <$integer>::from(left != 0 || right != 0),
                Operator::LogicalXor => <$integer>::from((left != 0) != (right != 0)),
                _ => panic_undefined(operator),
            }
        }
    )*};
}

integer_elements! {
    i8_element: i8; i16_element: i16; i32_element: i32; i64_element: i64;
    u8_element: u8; u16_element: u16; u32_element: u32; u64_element: u64;
}

macro_rules! float_elements {
    ($($name:ident: $float:ty;)*) => {$(
        fn $name(operator: Operator, left: $float, right: $float) -> $float {
            match operator {
                Operator::Sum => left + right,
                Operator::Product => left * right,
                Operator::Min | Operator::Max if right.is_nan() => right,
                Operator::Min => if right < left { right } else { left },
                Operator::Max => if right > left { right } else { left },
                _ => panic_undefined(operator),
            }
        }
    )*};
}

float_elements! { single_element: f32; double_element: f64; }

/// A product as C11 G.5.1 wants it: where the plain formula gives no number, and a factor is infinite or
/// a product of parts is, the infinite number in the direction that the parts other than NaN say.
macro_rules! complex_products {
    ($($name:ident: $float:ty;)*) => {$(
        fn $name([a, b]: [$float; 2], [c, d]: [$float; 2]) -> [$float; 2] {
            let plain = [a * c - b * d, a * d + b * c];
            if !plain[0].is_nan() || !plain[1].is_nan() {
                return plain;
            }
            let any_infinite = |parts: &[$float]| parts.iter().any(|part| part.is_infinite());
            let left_is_infinite = any_infinite(&[a, b]);
            let right_is_infinite = any_infinite(&[c, d]);
            let products = [a * c, b * d, a * d, b * c];
            if !left_is_infinite && !right_is_infinite && !any_infinite(&products) {
                return plain;
            }
            let scaled = |part: $float, is_of_infinite: bool| {
                let size = match (is_of_infinite, part.is_nan(), part.is_infinite()) {
                    (true, _, is_infinite) => if is_infinite { 1.0 } else { 0.0 },
                    (false, true, _) => 0.0,
                    (false, false, _) => part.abs(),
                };
                if part.is_sign_negative() { -size } else { size }
            };
            let [a, b] = [a, b].map(|part| scaled(part, left_is_infinite));
            let [c, d] = [c, d].map(|part| scaled(part, right_is_infinite));
            [<$float>::INFINITY * (a * c - b * d), <$float>::INFINITY * (a * d + b * c)]
        }
    )*};
}

complex_products! { single_product: f32; double_product: f64; }

fn f16_element(operator: Operator, left: f16, right: f16) -> f16 {
    let single = single_element(operator, left.to_f32_const(), right.to_f32_const());
    f16::from_f32_const(single)
}

fn bf16_element(operator: Operator, left: bf16, right: bf16) -> bf16 {
    let single = single_element(operator, left.to_f32_const(), right.to_f32_const());
    bf16::from_f32_const(single)
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("an element's bytes were cut to its size")
}

fn panic_undefined(operator: Operator) -> ! {
    panic!("{} is not defined on this datatype", operator.name());
}
