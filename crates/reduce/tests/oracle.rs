//! Every kernel of every instruction set this machine has, against the oracle, bit by bit.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use support::{Placed, assert_same, available, combinations, random_vector, special_elements};
use tributary_reduce::{Accumulation, Isa, Kernel, accumulator_bytes, oracle};
use tributary_wire::{Datatype, Operator};

/// Long enough for every tail of an unrolled loop, and not a multiple of any vector length.
const LENGTHS: std::ops::RangeInclusive<usize> = 0..=67;
const LONG_LENGTHS: [usize; 3] = [255, 1023, 4099];

/// Checks both forms of the kernel on one pair of vectors, at the given misalignments.
fn check_kernel(kernel: &Kernel, left: &[u8], right: &[u8], offsets: (usize, usize, usize)) {
    let (operator, datatype) = (kernel.operator(), kernel.datatype());
    let mut expected = left.to_vec();
    oracle::fold(operator, datatype, &mut expected, right);

    let mut folded = Placed::new(left, offsets.0);
    let source = Placed::new(right, offsets.1);
    kernel.fold(folded.bytes_mut(), source.bytes());
    assert_same(kernel.isa().name(), operator, datatype, folded.bytes(), &expected);
    folded.assert_guards();

    let mut combined = Placed::new(&vec![0x5a; left.len()], offsets.2);
    let left = Placed::new(left, offsets.0);
    kernel.combine_into(combined.bytes_mut(), left.bytes(), source.bytes());
    assert_same(kernel.isa().name(), operator, datatype, combined.bytes(), &expected);
    combined.assert_guards();
}

/// Checks one accumulation of all contributions, at the given misalignments.
fn check_accumulation(
    isa: Isa,
    (operator, datatype): (Operator, Datatype),
    contributions: &[Vec<u8>],
    offsets: (usize, usize),
) {
    let accumulation = Accumulation::with_isa(isa, operator, datatype).unwrap();
    let views: Vec<&[u8]> = contributions.iter().map(Vec::as_slice).collect();
    let expected = oracle::accumulate(operator, datatype, &views);

    let elements = contributions[0].len() / datatype.size_bytes();
    let unset = vec![0x5a; accumulator_bytes(datatype, elements)];
    let mut accumulator = Placed::new(&unset, offsets.0);
    for (child, contribution) in contributions.iter().enumerate() {
        let source = Placed::new(contribution, offsets.1);
        if child == 0 {
            accumulation.begin(accumulator.bytes_mut(), source.bytes());
        } else {
            accumulation.fold(accumulator.bytes_mut(), source.bytes());
        }
    }
    let result = accumulation.finish(accumulator.bytes_mut());
    assert_same(isa.name(), operator, datatype, result, &expected);
    accumulator.assert_guards();
}

#[test]
fn kernels_exist_exactly_where_operators_apply() {
    for isa in available() {
        for operator in Operator::ALL {
            for datatype in Datatype::ALL {
                let defined = operator.is_reduction() && operator.applies_to(datatype);
                let kernel = Kernel::with_isa(isa, operator, datatype);
                assert_eq!(kernel.is_some(), defined, "{operator:?} {datatype:?} {isa:?}");
                let accumulation = Accumulation::with_isa(isa, operator, datatype);
                assert_eq!(accumulation.is_some(), defined, "{operator:?} {datatype:?} {isa:?}");
            }
        }
    }
    assert_eq!(combinations().count(), 4 * 12 + 2 * 2 + 6 * 8 + 2 * 7);
}

#[test]
fn an_absent_instruction_set_gives_no_kernel() {
    for isa in Isa::ALL.into_iter().filter(|isa| !isa.is_available()) {
        assert!(Kernel::with_isa(isa, Operator::Sum, Datatype::F32).is_none());
        assert!(Accumulation::with_isa(isa, Operator::Sum, Datatype::Bf16).is_none());
    }
    assert!(Isa::best().is_available());
    assert_eq!(Kernel::new(Operator::Sum, Datatype::F32).unwrap().isa(), Isa::best());
}

#[test]
fn every_length_gives_the_oracles_bits() {
    let mut random = Pcg64Mcg::new(1);
    for (operator, datatype) in combinations() {
        for elements in LENGTHS.chain(LONG_LENGTHS) {
            let left = random_vector(datatype, elements, &mut random);
            let right = random_vector(datatype, elements, &mut random);
            for isa in available() {
                let kernel = Kernel::with_isa(isa, operator, datatype).unwrap();
                check_kernel(&kernel, &left, &right, (0, 0, 0));
            }
        }
    }
}

#[test]
fn every_misalignment_gives_the_oracles_bits() {
    let mut random = Pcg64Mcg::new(2);
    for (operator, datatype) in combinations() {
        let left = random_vector(datatype, 131, &mut random);
        let right = random_vector(datatype, 131, &mut random);
        for isa in available() {
            let kernel = Kernel::with_isa(isa, operator, datatype).unwrap();
            for offset in 0..64 {
                check_kernel(&kernel, &left, &right, (offset, 0, 7 * offset % 64));
                check_kernel(&kernel, &left, &right, (3, offset, offset));
            }
        }
    }
}

#[test]
fn every_special_element_meets_every_other() {
    for (operator, datatype) in combinations() {
        let specials = special_elements(datatype);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for first in &specials {
            for second in &specials {
                left.extend(first);
                right.extend(second);
            }
        }
        for isa in available() {
            let kernel = Kernel::with_isa(isa, operator, datatype).unwrap();
            check_kernel(&kernel, &left, &right, (0, 0, 0));
            let contributions = [left.clone(), right.clone()];
            check_accumulation(isa, (operator, datatype), &contributions, (0, 0));
        }
    }
}

#[test]
fn accumulations_give_the_oracles_bits() {
    let mut random = Pcg64Mcg::new(3);
    for combination in combinations() {
        for elements in LENGTHS.chain([255, 1023]) {
            for children in [1, 2, 5] {
                let contributions: Vec<_> = (0..children)
                    .map(|_| random_vector(combination.1, elements, &mut random))
                    .collect();
                for isa in available() {
                    let offsets = (elements % 64, 5 * elements % 64);
                    check_accumulation(isa, combination, &contributions, offsets);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_vectors_give_the_oracles_bits(
        combination in proptest::sample::select(combinations().collect::<Vec<_>>()),
        isa in proptest::sample::select(available().collect::<Vec<_>>()),
        elements in 0..600usize,
        seed in any::<u128>(),
        offsets in (0..64usize, 0..64usize, 0..64usize),
        children in 1..9usize,
    ) {
        let mut random = Pcg64Mcg::new(seed);
        let contributions: Vec<_> = (0..children.max(2))
            .map(|_| random_vector(combination.1, elements, &mut random))
            .collect();
        let kernel = Kernel::with_isa(isa, combination.0, combination.1).unwrap();
        check_kernel(&kernel, &contributions[0], &contributions[1], offsets);
        let offsets = (offsets.0, offsets.1);
        check_accumulation(isa, combination, &contributions[..children], offsets);
    }
}
