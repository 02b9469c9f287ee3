//! Accumulators and windows against big integers, in any order and grouping.

#![allow(clippy::unwrap_used, reason = "a test may unwrap, its helpers too")]

mod support;

use half::{bf16, f16};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use support::{Kind, Oracle, shuffle, vector};
use tributary_exact::{Accumulator, Class, Element, Format, Overflow, Window};

/// Sums of every kind of vector, by every way.
fn check<E: Element + Format<Rounded = E>>(seed: u64, rounds: usize, count_max: usize) {
    let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 1);
    for round in 0..rounds {
        let kind = Kind::ALL[round % Kind::ALL.len()];
        let count = (random.next_u64() % (count_max as u64 + 1)) as usize;
        let mut values: Vec<E> = vector(kind, count, &mut random);
        let mut oracle = Oracle::new();
        values.iter().for_each(|&value| oracle.add(value));
        let expected = oracle.round::<E>();
        let mut accumulator = Accumulator::<E>::default();
        values.iter().for_each(|&value| accumulator.add(value));
        let place = format!("format {} seed {seed} round {round} {kind:?}", E::CODE);
        assert_eq!(accumulator.round().to_bits_u64(), expected, "{place}: accumulator");
        shuffle(&mut values, &mut random);
        let merged = merged_in_a_tree(&values, &mut random);
        assert_eq!(merged.round().to_bits_u64(), expected, "{place}: windows");
        let window = accumulator.to_window();
        assert_eq!(merged, window, "{place}: one sum, two windows");
        let grouped = merged_by_groups(&values, &mut random);
        assert_eq!(grouped.to_window(), window, "{place}: accumulators merged");
    }
}

/// Windows of single values, merged in a random order and shape.
fn merged_in_a_tree<E: Element + Format<Rounded = E>>(
    values: &[E],
    random: &mut Pcg64Mcg,
) -> Window<E> {
    let mut windows: Vec<Window<E>> = values.iter().map(|&value| value.into()).collect();
    while windows.len() > 1 {
        let other = windows.swap_remove((random.next_u64() % windows.len() as u64) as usize);
        let at = (random.next_u64() % windows.len() as u64) as usize;
        windows[at].merge(&other).unwrap();
    }
    windows.pop().unwrap_or_default()
}

/// Accumulators of groups of random length, merged as accumulators or as windows.
fn merged_by_groups<E: Element + Format<Rounded = E>>(
    mut values: &[E],
    random: &mut Pcg64Mcg,
) -> Accumulator<E> {
    let mut sum = Accumulator::default();
    while !values.is_empty() {
        let (group, rest) = values.split_at(1 + (random.next_u64() % values.len() as u64) as usize);
        values = rest;
        let mut part = Accumulator::default();
        group.iter().for_each(|&value| part.add(value));
        if random.next_u64() & 1 == 0 {
            sum.merge(&part).unwrap();
        } else {
            sum.merge_window(&part.to_window()).unwrap();
        }
    }
    sum
}

#[test]
fn sums_of_any_values_in_any_order_are_those_of_the_oracle() {
    check::<f16>(1, 900, 40);
    check::<bf16>(2, 900, 40);
    check::<f32>(3, 900, 40);
    check::<f64>(4, 900, 40);
    check::<f16>(5, 90, 3000);
    check::<f64>(6, 90, 500);
}

#[test]
fn every_binary16_value_comes_back_and_every_midpoint_goes_to_the_even_neighbour() {
    for bits in 0..=u16::MAX {
        let value = f16::from_bits(bits);
        let expected = if value.is_nan() { 0x7e00 } else { bits };
        assert_eq!(Window::from(value).round().to_bits(), expected, "{bits:#x}");
        let mut accumulator = Accumulator::default();
        accumulator.add(value);
        assert_eq!(accumulator.round().to_bits(), expected, "{bits:#x}");
    }
}

#[test]
fn a_partial_sum_that_overflows_and_cancels_leaves_no_trace() {
    let values = [f64::MAX, f64::MAX, 5e-324, -f64::MAX, -f64::MAX];
    let mut accumulator = Accumulator::default();
    values.iter().for_each(|&value| accumulator.add(value));
    assert_eq!(accumulator.round(), 5e-324);
    let half_a_unit_above = f64::from_bits(0x7c90_0000_0000_0000);
    for (last, expected) in [
        (half_a_unit_above, f64::INFINITY),
        (f64::from_bits(half_a_unit_above.to_bits() - 1), f64::MAX),
    ] {
        let mut sum = Window::from(f64::MAX);
        sum.merge(&last.into()).unwrap();
        assert_eq!(sum.round(), expected, "{last:e}");
    }
}

#[test]
fn merges_up_to_the_full_width_are_exact_and_the_next_is_refused() {
    for sign in [1.0, -1.0] {
        let mut window = Window::from(sign * f64::MAX);
        let mut accumulator = window_to_accumulator(&window);
        let mut doublings = 0;
        loop {
            let before = window;
            let merged = window.merge(&before);
            assert_eq!(accumulator.merge(&accumulator.clone()), merged);
            if merged == Err(Overflow) {
                assert_eq!(window, before, "a refused merge changes nothing");
                break;
            }
            doublings += 1;
            assert_eq!(accumulator.to_window(), window, "after {doublings} doublings");
        }
        assert_eq!(doublings, 76);
        let kept = accumulator.to_window();
        assert_eq!(accumulator.merge_window(&kept), Err(Overflow));
        assert_eq!(accumulator.to_window(), kept);
        assert_eq!(window.round(), sign * f64::INFINITY);
    }
}

fn window_to_accumulator(window: &Window<f64>) -> Accumulator<f64> {
    let mut accumulator = Accumulator::default();
    accumulator.merge_window(window).unwrap();
    accumulator
}

#[test]
fn signs_of_zeros_infinities_and_nans_follow_the_rules() {
    let sum = |values: &[f32]| {
        let mut window = Window::default();
        values.iter().for_each(|&value| window.merge(&value.into()).unwrap());
        window
    };
    assert_eq!(sum(&[]).round().to_bits(), 0);
    assert_eq!(sum(&[]).class(), Class::Empty);
    assert_eq!(sum(&[-0.0, -0.0]).round().to_bits(), (-0.0_f32).to_bits());
    assert_eq!(sum(&[-0.0, 0.0]).round().to_bits(), 0);
    assert_eq!(sum(&[-0.0, 1.0, -1.0]), sum(&[0.0]));
    assert_eq!(sum(&[f32::INFINITY, -1.0, f32::INFINITY]).round(), f32::INFINITY);
    assert_eq!(sum(&[f32::NEG_INFINITY, f32::MAX]).round(), f32::NEG_INFINITY);
    let nan = 0x7fc0_0000;
    assert_eq!(sum(&[f32::INFINITY, f32::NEG_INFINITY]).round().to_bits(), nan);
    assert_eq!(sum(&[f32::from_bits(0xff80_0123), 1.0]).round().to_bits(), nan);
}

/// Not in CI: as many values as `TRIBUTARY_EXACT_VALUES` says, 10^8 by default, of binary64 and binary32.
#[test]
#[ignore = "takes minutes"]
fn very_many_values_are_summed_as_by_the_oracle() {
    let wanted = std::env::var("TRIBUTARY_EXACT_VALUES");
    let wanted: usize = wanted.map_or(100_000_000, |text| text.parse().unwrap());
    // A vector has 500 values on average.
    let rounds = wanted / 1000;
    check::<f64>(7, rounds, 1000);
    check::<f32>(8, rounds, 1000);
    println!("{} vectors, about {} values", 2 * rounds, 1000 * rounds);
}
