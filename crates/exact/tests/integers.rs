//! Sums as integers, added by plain additions in place of a reduction, against sums that are merged.

#![allow(clippy::unwrap_used, reason = "a test may unwrap, its helpers too")]

mod support;

use half::{bf16, f16};
use rand_pcg::Pcg64Mcg;
use support::{Kind, Oracle, vector};
use tributary_exact::{Accumulator, Class, Element, Format, Overflow, integers_per_sum};

fn sum_of<E: Element + Format<Rounded = E>>(values: &[E]) -> Accumulator<E> {
    let mut sum = Accumulator::default();
    values.iter().for_each(|&value| sum.add(value));
    sum
}

fn integers_of<F: Format>(sum: &Accumulator<F>) -> Vec<i64> {
    let mut integers = vec![0; integers_per_sum::<F>()];
    sum.write_integers(&mut integers);
    integers
}

/// What a reduction of integers over ranks gives.
fn reduce(ranks: &[Vec<i64>]) -> Vec<i64> {
    let mut total = vec![0_i64; ranks[0].len()];
    for integers in ranks {
        total.iter_mut().zip(integers).for_each(|(total, integer)| *total += integer);
    }
    total
}

fn check<E: Element + Format<Rounded = E>>(seed: u128) {
    let mut random = Pcg64Mcg::new(seed);
    for round in 0..270 {
        let kind = Kind::ALL[round % 9];
        let ranks = 1 + round % 16;
        let values: Vec<E> = vector(kind, round % 61, &mut random);
        let mut oracle = Oracle::new();
        values.iter().for_each(|&value| oracle.add(value));
        // Some ranks have no values.
        let pieces: Vec<Vec<i64>> = (0..ranks)
            .map(|rank| {
                let cut = |rank| rank * values.len() / ranks;
                integers_of(&sum_of(&values[cut(rank)..cut(rank + 1)]))
            })
            .collect();
        let mut sum = Accumulator::<E>::default();
        sum.merge_integers(&reduce(&pieces)).unwrap();
        let place = format!("format {} seed {seed} round {round} {kind:?}", E::CODE);
        assert_eq!(sum.round().to_bits_u64(), oracle.round::<E>(), "{place}");
        assert_eq!(sum.to_window(), sum_of(&values).to_window(), "{place}");
    }
}

#[test]
fn added_integers_are_the_sum_of_all_ranks() {
    check::<f16>(1);
    check::<bf16>(2);
    check::<f32>(3);
    check::<f64>(4);
}

#[test]
fn every_pair_of_classes_joins_as_in_a_merge() {
    let samples = [&[][..], &[-0.0], &[1.5], &[f64::INFINITY], &[f64::NEG_INFINITY], &[f64::NAN]];
    for left in samples {
        for right in samples {
            let (left, right) = (sum_of(left), sum_of(right));
            let mut merged = left;
            merged.merge(&right).unwrap();
            let mut sum = Accumulator::<f64>::default();
            sum.merge_integers(&reduce(&[integers_of(&left), integers_of(&right)])).unwrap();
            assert_eq!(sum.to_window(), merged.to_window());
        }
    }
}

#[test]
fn integers_that_no_ranks_can_have_are_refused_and_change_nothing() {
    let one = sum_of(&[1.0_f64]);
    let top = integers_per_sum::<f64>() - 1;
    for (at, integer) in [(2, i64::MAX), (9, i64::MIN), (top, 1 << 31), (top, -(1 << 31) - 1)] {
        let mut integers = integers_of(&one);
        integers[at] = integer;
        let mut sum = one;
        assert_eq!(sum.merge_integers(&integers), Err(Overflow), "{integer} at {at}");
        assert_eq!(sum.to_window(), one.to_window());
    }
    // An infinity makes the integer of no importance.
    let mut integers = integers_of(&sum_of(&[f64::INFINITY]));
    integers[top] = i64::MAX;
    let mut sum = one;
    sum.merge_integers(&integers).unwrap();
    assert_eq!(sum.class(), Class::PositiveInfinity);
}
