//! Kernels to test with: plain ones, ones that do not commute, one that accumulates wide.

use crate::{Combine, Wide};

/// A kernel made of a function on elements of `N` bytes.
struct Elementwise<const N: usize>(fn([u8; N], [u8; N]) -> [u8; N]);

impl<const N: usize> Combine for Elementwise<N> {
    fn element_bytes(&self) -> usize {
        N
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        assert!(target.len() == left.len() && target.len() == right.len());
        assert!(target.len().is_multiple_of(N), "cut inside an element");
        let (target, left, right) =
            (target.as_chunks_mut::<N>().0, left.as_chunks::<N>().0, right.as_chunks::<N>().0);
        for ((target, left), right) in target.iter_mut().zip(left).zip(right) {
            *target = self.0(*left, *right);
        }
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        assert!(target.len() == source.len() && target.len().is_multiple_of(N));
        for (target, source) in target.as_chunks_mut::<N>().0.iter_mut().zip(source.as_chunks().0) {
            *target = self.0(*target, *source);
        }
    }
}

fn words<const N: usize>(bytes: [u8; N]) -> impl Fn(usize) -> u32 {
    move |index| u32::from_le_bytes(bytes[index * 4..][..4].try_into().unwrap())
}

/// Composition of the affine maps `x -> a x + b`: associative, not commutative.
fn affine(left: [u8; 8], right: [u8; 8]) -> [u8; 8] {
    let (l, r) = (words(left), words(right));
    let a = l(0).wrapping_mul(r(0));
    let b = l(0).wrapping_mul(r(1)).wrapping_add(l(1));
    (u64::from(a) | u64::from(b) << 32).to_le_bytes()
}

/// Product in the Heisenberg group: not commutative, and 12 bytes divide no power of two.
fn heisenberg(left: [u8; 12], right: [u8; 12]) -> [u8; 12] {
    let (l, r) = (words(left), words(right));
    let mut product = [0; 12];
    let z = l(2).wrapping_add(r(2)).wrapping_add(l(0).wrapping_mul(r(1)));
    let parts = [l(0).wrapping_add(r(0)), l(1).wrapping_add(r(1)), z];
    for (index, part) in parts.into_iter().enumerate() {
        product[index * 4..][..4].copy_from_slice(&part.to_le_bytes());
    }
    product
}

fn sum_f32(left: [u8; 4], right: [u8; 4]) -> [u8; 4] {
    // Small integers plus fractions: no NaN, and sums that round differently in another order.
    (as_f32(left) + as_f32(right)).to_le_bytes()
}

/// Any bits as a number of moderate size.
fn as_f32(bits: [u8; 4]) -> f32 {
    let value = f32::from_le_bytes(bits);
    if value.is_finite() && value.abs() < 1e30 { value } else { 1.0 / 3.0 }
}

fn sum_f64(left: [u8; 8], right: [u8; 8]) -> [u8; 8] {
    let value = |bits| {
        let value = f64::from_le_bytes(bits);
        if value.is_finite() && value.abs() < 1e300 { value } else { 1.0 / 3.0 }
    };
    (value(left) + value(right)).to_le_bytes()
}

fn sum_i32(left: [u8; 4], right: [u8; 4]) -> [u8; 4] {
    i32::from_le_bytes(left).wrapping_add(i32::from_le_bytes(right)).to_le_bytes()
}

/// Sum of bfloat16, accumulated in binary32 and cut (not rounded: the test needs no more) once.
struct SumBf16;

fn widen(bits: [u8; 2]) -> f32 {
    as_f32([0, 0, bits[0], bits[1]])
}

fn narrow(value: f32) -> [u8; 2] {
    let bytes = value.to_le_bytes();
    [bytes[2], bytes[3]]
}

impl Combine for SumBf16 {
    fn element_bytes(&self) -> usize {
        2
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        let sum = |left, right| narrow(widen(left) + widen(right));
        Elementwise::<2>(sum).combine_into(target, left, right);
    }

    fn fold(&self, _: &mut [u8], _: &[u8]) {
        panic!("folding more than two ranks must go through the wide accumulator");
    }

    fn wide(&self) -> Option<&dyn Wide> {
        Some(self)
    }
}

impl Wide for SumBf16 {
    fn accumulator_bytes(&self) -> usize {
        4
    }

    fn begin(&self, accumulator: &mut [u8], source: &[u8]) {
        assert_eq!(accumulator.len(), 2 * source.len());
        for (wide, narrow) in
            accumulator.as_chunks_mut::<4>().0.iter_mut().zip(source.as_chunks().0)
        {
            *wide = widen(*narrow).to_le_bytes();
        }
    }

    fn fold(&self, accumulator: &mut [u8], source: &[u8]) {
        for (wide, narrow) in
            accumulator.as_chunks_mut::<4>().0.iter_mut().zip(source.as_chunks().0)
        {
            *wide = (f32::from_le_bytes(*wide) + widen(*narrow)).to_le_bytes();
        }
    }

    fn finish(&self, target: &mut [u8], accumulator: &mut [u8]) {
        for (target, wide) in
            target.as_chunks_mut::<2>().0.iter_mut().zip(accumulator.as_chunks().0)
        {
            *target = narrow(f32::from_le_bytes(*wide));
        }
    }
}

/// Composition of affine maps on every eight bytes of an element that is longer than several lines, and
/// divides no piece.
fn long_affine(left: [u8; 1000], right: [u8; 1000]) -> [u8; 1000] {
    let mut composed = [0; 1000];
    let operands = left.as_chunks().0.iter().zip(right.as_chunks().0);
    for (target, (left, right)) in composed.as_chunks_mut::<8>().0.iter_mut().zip(operands) {
        *target = affine(*left, *right);
    }
    composed
}

/// All of them.
pub(super) static KERNELS: [&'static dyn Combine; 8] = [
    &Elementwise::<4>(sum_i32),
    &Elementwise::<4>(sum_f32),
    &Elementwise::<8>(sum_f64),
    &Elementwise::<8>(affine),
    &Elementwise::<12>(heisenberg),
    &Elementwise::<1000>(long_affine),
    &Elementwise::<1>(|left, right| [left[0].wrapping_mul(3).wrapping_add(right[0])]),
    &SumBf16,
];

/// The reduction of `contributions` in their order, without the engine.
pub(super) fn oracle(kernel: &dyn Combine, contributions: &[Vec<u8>]) -> Vec<u8> {
    let len_bytes = contributions[0].len();
    let mut result = contributions[0].clone();
    if contributions.len() == 1 {
        return result;
    }
    if let (Some(wide), true) = (kernel.wide(), contributions.len() > 2) {
        let elements = len_bytes / kernel.element_bytes();
        let mut accumulator = vec![0; elements * wide.accumulator_bytes()];
        wide.begin(&mut accumulator, &contributions[0]);
        contributions[1..].iter().for_each(|next| wide.fold(&mut accumulator, next));
        wide.finish(&mut result, &mut accumulator);
        return result;
    }
    for next in &contributions[1..] {
        let left = result.clone();
        kernel.combine_into(&mut result, &left, next);
    }
    result
}
