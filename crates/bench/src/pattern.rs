//! The ranks' contributions and the expected results. Contributions are small whole numbers, so every order
//! of reduction is exact, and plain arithmetic gives the result without the kernels under test.

use half::{bf16, f16};
use tributary_wire::{Datatype, Operator};

/// Elements after which the pattern repeats: a prime, so that a segment in the wrong place is noticed.
const PERIOD: usize = 1021;

/// Rank `rank`'s vector of `elements`, in the layout of `datatype`.
pub(crate) fn input(datatype: Datatype, operator: Operator, rank: u32, elements: usize) -> Vec<u8> {
    repeat(elements, |index| {
        encode(datatype, Number::whole(value(datatype, operator, rank, index)), rank)
    })
}

/// The expected reduction of `ranks` inputs; for a broadcast, rank 0's input.
pub(crate) fn expected_result(
    datatype: Datatype,
    operator: Operator,
    ranks: u32,
    elements: usize,
) -> Vec<u8> {
    repeat(elements, |index| {
        let values = (0..ranks).map(|rank| value(datatype, operator, rank, index));
        if datatype.is_pair() {
            let (value, rank) = locate(operator, values);
            encode(datatype, Number::whole(value), rank)
        } else {
            encode(datatype, reduce(operator, values), 0)
        }
    })
}

/// The first element in which two vectors differ, padding aside.
pub(crate) fn first_difference(datatype: Datatype, left: &[u8], right: &[u8]) -> Option<usize> {
    if left.len() != right.len() {
        return Some(left.len().min(right.len()) / datatype.size_bytes());
    }
    let parts = meaningful(datatype);
    let size = datatype.size_bytes();
    left.chunks_exact(size).zip(right.chunks_exact(size)).position(|(left, right)| {
        parts.iter().any(|part| left[part.clone()] != right[part.clone()])
    })
}

/// A vector that repeats `element` of the indices below [`PERIOD`].
fn repeat(elements: usize, element: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let period: Vec<Vec<u8>> = (0..PERIOD.min(elements)).map(element).collect();
    (0..elements).flat_map(|index| period[index % PERIOD].iter().copied()).collect()
}

/// Element `index` of rank `rank`, a small whole number.
///
/// 0..4, but 0..2 for bfloat16, whose 8 significant bits must hold the sum of 256 ranks; 1 or 2
/// for a product, which is then a power of two.
fn value(datatype: Datatype, operator: Operator, rank: u32, index: usize) -> u8 {
    let mixed = (index as u32).wrapping_mul(2_654_435_761) >> 16;
    let step = mixed.wrapping_add(rank);
    match (operator, datatype) {
        (Operator::Product, _) => 1 + (step % 2) as u8,
        (_, Datatype::Bf16) => (step % 2) as u8,
        _ => (step % 4) as u8,
    }
}

/// A result before it is laid out as a datatype.
#[derive(Clone, Copy)]
struct Number {
    /// For the integer types; wraps.
    integer: i64,
    /// For the float types; exact, or infinite.
    float: f64,
}

impl Number {
    fn whole(value: u8) -> Self {
        Self { integer: i64::from(value), float: f64::from(value) }
    }
}

/// The smallest or largest value and the first rank that has it.
fn locate(operator: Operator, values: impl Iterator<Item = u8>) -> (u8, u32) {
    let ranked = values.zip(0_u32..);
    let found = match operator {
        Operator::MaxLoc => ranked.max_by_key(|&(value, rank)| (value, std::cmp::Reverse(rank))),
        Operator::MinLoc => ranked.min_by_key(|&(value, rank)| (value, rank)),
        // A broadcast of pairs: rank 0's.
        _ => ranked.min_by_key(|&(_, rank)| rank),
    };
    found.expect("a benchmark has at least one rank")
}

fn reduce(operator: Operator, values: impl Iterator<Item = u8>) -> Number {
    let all = values.map(Number::whole).reduce(|left, right| Number {
        integer: combine(operator, left.integer, right.integer),
        float: combine_float(operator, left.float, right.float),
    });
    all.expect("a benchmark has at least one rank")
}

fn combine(operator: Operator, left: i64, right: i64) -> i64 {
    match operator {
        Operator::Sum => left.wrapping_add(right),
        Operator::Product => left.wrapping_mul(right),
        Operator::Min => left.min(right),
        Operator::Max => left.max(right),
        Operator::BitAnd => left & right,
        Operator::BitOr => left | right,
        Operator::BitXor => left ^ right,
        Operator::LogicalAnd => i64::from(left != 0 && right != 0),
        Operator::LogicalOr => i64::from(left != 0 || right != 0),
        Operator::LogicalXor => i64::from((left != 0) != (right != 0)),
        Operator::Broadcast | Operator::Barrier | Operator::MinLoc | Operator::MaxLoc => left,
    }
}

fn combine_float(operator: Operator, left: f64, right: f64) -> f64 {
    match operator {
        Operator::Sum => left + right,
        Operator::Product => left * right,
        Operator::Min => left.min(right),
        Operator::Max => left.max(right),
        _ => left,
    }
}

/// One element's bytes; casts of integers keep the low bits, as wrapping arithmetic does.
fn encode(datatype: Datatype, number: Number, rank: u32) -> Vec<u8> {
    let Number { integer, float } = number;
    let pair = |value: &[u8], rank_at: usize| {
        let mut bytes = vec![0; datatype.size_bytes()];
        bytes[..value.len()].copy_from_slice(value);
        bytes[rank_at..rank_at + 4].copy_from_slice(&rank.to_le_bytes());
        bytes
    };
    match datatype {
        Datatype::I8 | Datatype::U8 => vec![integer as u8],
        Datatype::I16 | Datatype::U16 => (integer as u16).to_le_bytes().to_vec(),
        Datatype::I32 | Datatype::U32 => (integer as u32).to_le_bytes().to_vec(),
        Datatype::I64 | Datatype::U64 => integer.to_le_bytes().to_vec(),
        Datatype::F16 => f16::from_f64(float).to_le_bytes().to_vec(),
        Datatype::Bf16 => bf16::from_f64(float).to_le_bytes().to_vec(),
        Datatype::F32 => (float as f32).to_le_bytes().to_vec(),
        Datatype::F64 => float.to_le_bytes().to_vec(),
        Datatype::I16Index => pair(&(integer as i16).to_le_bytes(), 4),
        Datatype::I32Index => pair(&(integer as i32).to_le_bytes(), 4),
        Datatype::I64Index => pair(&integer.to_le_bytes(), 8),
        Datatype::F32Index => pair(&(float as f32).to_le_bytes(), 4),
        Datatype::F64Index => pair(&float.to_le_bytes(), 8),
        // A real number, so that the product of any number of ranks stays one.
        Datatype::F32Complex => [(float as f32).to_le_bytes(), [0; 4]].concat(),
        Datatype::F64Complex => [float.to_le_bytes(), [0; 8]].concat(),
        Datatype::F32FloatIndex => {
            [(float as f32).to_le_bytes(), (rank as f32).to_le_bytes()].concat()
        }
        Datatype::F64FloatIndex => [float.to_le_bytes(), f64::from(rank).to_le_bytes()].concat(),
    }
}

/// The two runs of bytes of an element that carry a value; between and behind them is padding.
fn meaningful(datatype: Datatype) -> [std::ops::Range<usize>; 2] {
    match datatype {
        Datatype::I16Index => [0..2, 4..8],
        Datatype::I64Index | Datatype::F64Index => [0..8, 8..12],
        _ => [0..datatype.size_bytes(), 0..0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_ranks_sum_to_six() {
        // Ranks 0..4 hold 0, 1, 2, 3 in some rotation, whatever the index.
        let sums = expected_result(Datatype::F32, Operator::Sum, 4, 3000);
        assert!(sums.chunks_exact(4).all(|sum| sum == 6.0_f32.to_le_bytes()));
        let sums = expected_result(Datatype::F16, Operator::Sum, 4, 5);
        assert!(sums.chunks_exact(2).all(|sum| sum == f16::from_f32(6.0).to_le_bytes()));
    }

    #[test]
    fn integers_wrap_and_floats_overflow() {
        // 64 ranks of which 32 hold a 2: 2^32.
        let products = expected_result(Datatype::I32, Operator::Product, 64, 1);
        assert_eq!(products, [0; 4]);
        let products = expected_result(Datatype::F16, Operator::Product, 64, 1);
        assert_eq!(products, f16::INFINITY.to_le_bytes());
    }

    #[test]
    fn minloc_names_the_first_rank_of_the_smallest() {
        let found = expected_result(Datatype::F64Index, Operator::MinLoc, 9, 40);
        for (index, pair) in found.chunks_exact(16).enumerate() {
            let rank = u32::from_le_bytes(pair[8..12].try_into().unwrap());
            assert!(rank < 4, "the smallest value is among the first four ranks");
            let own = input(Datatype::F64Index, Operator::MinLoc, rank, index + 1);
            assert_eq!(own[index * 16..][..8], pair[..8]);
        }
    }

    #[test]
    fn a_difference_is_found_and_padding_is_not() {
        let vector = input(Datatype::I16Index, Operator::MinLoc, 1, 10);
        let mut other = vector.clone();
        other[8 + 2] ^= 0xff;
        assert_eq!(first_difference(Datatype::I16Index, &vector, &other), None);
        other[8 * 3 + 5] ^= 1;
        assert_eq!(first_difference(Datatype::I16Index, &vector, &other), Some(3));
        assert_eq!(first_difference(Datatype::I16Index, &vector, &vector[..16]), Some(2));
    }
}
