//! Kernels of exact sums, for ranks that have all contributions in one memory: those of a host.
//!
//! Owns the way from bytes to values. Must not know how hosts sum exactly: their partial sums travel as integers.

use half::{bf16, f16};
use tributary_exact::{Element, Format, sum_two, sum_vectors};
use tributary_reduce::Kernel;
use tributary_shm_collectives::AtOnce;
use tributary_wire::Datatype;

/// The exact sum of floats of one type. Complex numbers are two.
pub(crate) struct ExactSum {
    sum: Sum,
}

/// As [`AtOnce::reduce`].
type Sum = for<'a> fn(&mut [u8], u32, &dyn Fn(u32) -> &'a [u8]);

impl ExactSum {
    /// The exact sum for a kernel that adds floats, and the kernel that adds two of them so.
    pub(crate) fn new(plain: Kernel) -> (Self, Kernel) {
        match plain.datatype() {
            Datatype::F16 => Self::of::<f16>(plain),
            Datatype::Bf16 => Self::of::<bf16>(plain),
            Datatype::F32 | Datatype::F32Complex => Self::of::<f32>(plain),
            Datatype::F64 | Datatype::F64Complex => Self::of::<f64>(plain),
            other => unreachable!("{other:?} has no floats"),
        }
    }

    fn of<E: Element + Format<Rounded = E>>(plain: Kernel) -> (Self, Kernel) {
        (Self { sum: sum::<E> }, plain.with_functions(fold::<E>, combine::<E>))
    }
}

impl AtOnce for ExactSum {
    fn reduce<'a>(&self, target: &mut [u8], ranks: u32, source: &dyn Fn(u32) -> &'a [u8]) {
        (self.sum)(target, ranks, source);
    }
}

/// Contributions whose places need no memory of the heap.
const FEW: usize = 16;

fn sum<'a, E: Element + Format<Rounded = E>>(
    target: &mut [u8],
    ranks: u32,
    source: &dyn Fn(u32) -> &'a [u8],
) {
    let mut few: [&[E]; FEW] = [&[]; FEW];
    let mut many = Vec::new();
    let vectors: &mut [&[E]] = match few.get_mut(..ranks as usize) {
        Some(few) => few,
        None => {
            many.resize(ranks as usize, few[0]);
            &mut many
        }
    };
    let mut are_aligned = true;
    for (rank, vector) in (0..).zip(&mut *vectors) {
        match as_values(source(rank)) {
            Some(values) => *vector = values,
            None => are_aligned = false,
        }
    }
    on_values(target, |target: &mut [E]| {
        if are_aligned {
            return sum_vectors(target, ranks, |rank, range| &vectors[rank as usize][range]);
        }
        let vectors: Vec<Vec<E>> = (0..ranks).map(|rank| copy_values(source(rank))).collect();
        sum_vectors(target, ranks, |rank, range| &vectors[rank as usize][range]);
    });
}

fn combine<E: Element + Format<Rounded = E>>(target: &mut [u8], left: &[u8], right: &[u8]) {
    on_values(target, |target: &mut [E]| match (as_values(left), as_values(right)) {
        (Some(left), Some(right)) => sum_two(target, left, right),
        _ => sum_two(target, &copy_values(left), &copy_values(right)),
    });
}

fn fold<E: Element + Format<Rounded = E>>(target: &mut [u8], source: &[u8]) {
    let left = target.to_vec();
    combine::<E>(target, &left, source);
}

/// Changes values that lie at any address.
fn on_values<E: Element>(bytes: &mut [u8], change: impl FnOnce(&mut [E])) {
    // SAFETY: every bit pattern is a value, and every value has only bytes that are set.
    if let ([], values, []) = unsafe { bytes.align_to_mut::<E>() } {
        return change(values);
    }
    let mut values: Vec<E> = copy_values(bytes);
    change(&mut values);
    for (bytes, value) in bytes.chunks_exact_mut(size_of::<E>()).zip(values) {
        bytes.copy_from_slice(&value.to_bits_u64().to_le_bytes()[..size_of::<E>()]);
    }
}

/// The values at an address that is aligned for them.
fn as_values<E: Element>(bytes: &[u8]) -> Option<&[E]> {
    // SAFETY: every bit pattern is a value.
    let (before, values, after) = unsafe { bytes.align_to::<E>() };
    (before.is_empty() && after.is_empty()).then_some(values)
}

fn copy_values<E: Element>(bytes: &[u8]) -> Vec<E> {
    let value = |bytes: &[u8]| {
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        E::from_bits_u64(u64::from_le_bytes(bits))
    };
    bytes.chunks_exact(size_of::<E>()).map(value).collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use tributary_exact::Accumulator;
    use tributary_wire::Operator;

    use super::*;

    /// Bytes at an address that is aligned for everything, or for nothing.
    struct Placed {
        words: Vec<u64>,
        is_unaligned: bool,
    }

    impl Placed {
        fn new(len_bytes: usize, is_unaligned: bool) -> Self {
            Self { words: vec![0; len_bytes / 8 + 2], is_unaligned }
        }

        fn bytes(&mut self, len_bytes: usize) -> &mut [u8] {
            // SAFETY: bytes have no alignment, and any is one.
            let (_, bytes, _) = unsafe { self.words.align_to_mut::<u8>() };
            &mut bytes[usize::from(self.is_unaligned)..][..len_bytes]
        }
    }

    /// Values of all exponents, or of few, with zeros of both signs, infinities and NaNs among them.
    fn draw<E: Element>(random: &mut Pcg64Mcg) -> u64 {
        let width = E::PRECISION + E::EXPONENT_BITS;
        let bits = random.random::<u64>() >> (64 - width);
        let fractions = (1 << (E::PRECISION - 1)) - 1;
        let sign = 1 << (width - 1);
        match random.random_range(0..16) {
            0 => bits & sign,
            1 => bits | !(sign | fractions) & (u64::MAX >> (64 - width)),
            2..6 => bits,
            _ => bits & (sign | fractions) | (1 << (E::EXPONENT_BITS - 1)) << (E::PRECISION - 1),
        }
    }

    fn check<E: Element + Format<Rounded = E>>(datatype: Datatype) {
        let (exact, kernel) = ExactSum::new(Kernel::new(Operator::Sum, datatype).unwrap());
        let mut random = Pcg64Mcg::seed_from_u64(datatype.code().into());
        for round in 0..400_u32 {
            let ranks = 1 + round % 9;
            let count = random.random_range(0..40_usize) * 2;
            let len_bytes = count * size_of::<E>();
            let mut placed = |_| Placed::new(len_bytes, random.random_range(0..8) == 0);
            let mut vectors: Vec<Placed> = (0..=ranks).map(&mut placed).collect();
            let mut sums = vec![Accumulator::<E>::default(); count];
            for vector in &mut vectors[1..] {
                let places = vector.bytes(len_bytes).chunks_exact_mut(size_of::<E>());
                for (place, sum) in places.zip(&mut sums) {
                    let bits = draw::<E>(&mut random);
                    place.copy_from_slice(&bits.to_le_bytes()[..size_of::<E>()]);
                    sum.add(E::from_bits_u64(bits));
                }
            }
            let (target, sources) = vectors.split_first_mut().unwrap();
            let target = target.bytes(len_bytes);
            let sources: Vec<&[u8]> =
                sources.iter_mut().map(|source| &*source.bytes(len_bytes)).collect();
            exact.reduce(target, ranks, &|rank| sources[rank as usize]);
            let expected: Vec<u64> = sums.iter().map(|sum| sum.round().to_bits_u64()).collect();
            let found = |target: &[u8]| -> Vec<u64> {
                copy_values::<E>(target).into_iter().map(E::to_bits_u64).collect()
            };
            assert_eq!(found(target), expected, "{datatype:?} round {round}");
            if let [left, right] = sources[..] {
                target.fill(1);
                kernel.combine_into(target, left, right);
                assert_eq!(found(target), expected, "{datatype:?} round {round}, of two");
                target.copy_from_slice(left);
                kernel.fold(target, right);
                assert_eq!(found(target), expected, "{datatype:?} round {round}, in place");
            }
        }
    }

    fn check_all() {
        check::<f16>(Datatype::F16);
        check::<bf16>(Datatype::Bf16);
        check::<f32>(Datatype::F32);
        check::<f32>(Datatype::F32Complex);
        check::<f64>(Datatype::F64);
        check::<f64>(Datatype::F64Complex);
    }

    #[test]
    fn sums_are_the_rounded_real_sums_at_any_address() {
        check_all();
    }

    /// A thread whose processor flushes subnormals, or does not round to nearest, gives the sums that others give.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_threads_floating_point_mode_changes_no_sum() {
        use core::arch::asm;
        let default = 0x1f80_u32;
        for mode in [0x2000, 0x4000, 0x6000, 0x8040].map(|mode| default | mode) {
            // SAFETY: the value is a valid MXCSR, and the default one is back before another test's code runs.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const mode) };
            check_all();
            // SAFETY: as above.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const default) };
        }
    }
}
