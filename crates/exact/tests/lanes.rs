//! Lanes, added by plain additions in place of a reduction, against accumulators of the same values.

#![allow(clippy::unwrap_used, reason = "a test may unwrap, its helpers too")]

mod support;

use half::{bf16, f16};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use support::{Kind, infinity, vector};
use tributary_exact::{Accumulator, Element, Format, Isa, Layout, Span, sum_two, sum_vectors};

/// The vectors of all ranks, which are equally long.
type Vectors<E> = Vec<Vec<E>>;

const MOST_RANKS: u32 = i32::MAX as u32;

/// The span of all ranks' values, as a reduction to the maximum finds it.
fn agree<E: Element>(vectors: &[Vec<E>]) -> Span {
    let spans = vectors.iter().map(|values| Span::of(values));
    let maxima = spans
        .clone()
        .map(Span::to_maxima)
        .reduce(|left, right| std::array::from_fn(|at| left[at].max(right[at])));
    let joined = spans.fold(Span::EMPTY, Span::join);
    assert_eq!(Span::from_maxima(maxima.unwrap()), Some(joined));
    vectors.iter().for_each(|values| assert!(joined.contains(Span::of(values))));
    joined
}

/// The bits of the sums that are read from the lanes of all ranks, by every instruction set and by what the number of values chooses.
fn sums_by_lanes<E: Element>(layout: &Layout, vectors: &[Vec<E>]) -> Vec<u64> {
    let sums = sums_by(
        layout,
        vectors,
        |values, lanes| layout.write(values, lanes),
        |lanes, sums| {
            layout.read(lanes, sums);
        },
    );
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let by_isa = sums_by(
            layout,
            vectors,
            |values, lanes| layout.write_with(isa, values, lanes),
            |lanes, sums| layout.read_with(isa, lanes, sums),
        );
        assert_eq!(by_isa, sums, "{isa:?}");
    }
    sums
}

fn sums_by<E: Element>(
    layout: &Layout,
    vectors: &[Vec<E>],
    write: impl Fn(&[E], &mut [i64]),
    read: impl Fn(&[i64], &mut [E]),
) -> Vec<u64> {
    let len = vectors[0].len();
    let mut total = vec![0_i64; len * layout.lanes_per_element()];
    let mut lanes = total.clone();
    for values in vectors {
        lanes.fill(i64::MIN);
        write(values, &mut lanes);
        for (total, &lane) in total.iter_mut().zip(&lanes) {
            *total = total.checked_add(lane).expect("lanes have room for all ranks");
        }
    }
    let mut sums = vec![E::from_bits_u64(1); len];
    read(&total, &mut sums);
    sums.into_iter().map(Element::to_bits_u64).collect()
}

/// The bits of the sums of vectors in one memory.
fn sums_of_vectors<E: Element + Format<Rounded = E>>(vectors: &[Vec<E>]) -> Vec<u64> {
    let mut sums = vec![E::from_bits_u64(1); vectors[0].len()];
    sum_vectors(&mut sums, vectors.len() as u32, |at, range| &vectors[at as usize][range]);
    if let [left, right] = vectors {
        let mut of_two = vec![E::from_bits_u64(1); left.len()];
        sum_two(&mut of_two, left, right);
        assert!(of_two.iter().zip(&sums).all(|(two, sum)| two.to_bits_u64() == sum.to_bits_u64()));
    }
    sums.into_iter().map(Element::to_bits_u64).collect()
}

fn expected<E: Element + Format<Rounded = E>>(vectors: &[Vec<E>]) -> Vec<u64> {
    let sum_at = |at: usize| {
        let mut sum = Accumulator::<E>::default();
        vectors.iter().for_each(|values| sum.add(values[at]));
        sum.round().to_bits_u64()
    };
    (0..vectors[0].len()).map(sum_at).collect()
}

/// Vectors of one kind, which at times meet in sums that cancel.
fn draw<E: Element>(kind: Kind, ranks: usize, len: usize, random: &mut Pcg64Mcg) -> Vectors<E> {
    let mut vectors: Vectors<E> = (0..ranks).map(|_| vector(kind, len, random)).collect();
    if matches!(kind, Kind::FewExponents) {
        // All ranks have exponents from the same few on, up to a random distance.
        let mut shared: Vec<E> = vector(kind, ranks * len, random);
        let distance = [1, 40, 90, 150][(random.next_u64() % 4) as usize];
        for value in &mut shared {
            *value = moved(*value, (random.next_u64() % distance) as i64);
        }
        vectors = (0..ranks).map(|rank| shared[rank * len..][..len].to_vec()).collect();
    }
    if matches!(kind, Kind::Cancelling) {
        let sign = 1 << (E::PRECISION - 1 + E::EXPONENT_BITS);
        for pair in vectors.chunks_exact_mut(2) {
            let opposite = |value: &E| E::from_bits_u64(value.to_bits_u64() ^ sign);
            pair[1] = pair[0].iter().map(opposite).collect();
        }
    }
    vectors
}

/// How often layouts of one, two, three and more digits were made, with and without counts, and how often one was
/// taken again.
#[derive(Default)]
struct Seen {
    lanes: [usize; 5],
    taken_again: usize,
}

fn check<E: Element + Format<Rounded = E>>(seed: u128, rounds: usize) -> Seen {
    let mut random = Pcg64Mcg::new(seed);
    let mut seen = Seen::default();
    for round in 0..rounds {
        let kind = Kind::ALL[round % Kind::ALL.len()];
        let ranks = 1 + (random.next_u64() % 64) as usize;
        // Some are longer than a block of `sum_vectors`.
        let most = if round % 16 == 0 { 700 } else { 24 };
        let len = (random.next_u64() % most) as usize;
        let claimed = match random.next_u64() % 3 {
            0 => ranks as u32,
            1 => MOST_RANKS,
            _ => (ranks as u32).max(MOST_RANKS >> (random.next_u64() % 31)),
        };
        let place = format!("format {} seed {seed} round {round} {kind:?}", E::CODE);
        let vectors: Vectors<E> = draw(kind, ranks, len, &mut random);
        let span = agree(&vectors);
        let layout = Layout::new::<E>(span, claimed);
        assert!(layout.holds(span), "{place}");
        seen.lanes[layout.lanes_per_element().min(4)] += 1;
        assert_eq!(sums_by_lanes(&layout, &vectors), expected(&vectors), "{place}");
        assert_eq!(sums_of_vectors(&vectors), expected(&vectors), "{place}");
        for vectors in again(&vectors, &mut random) {
            if layout.holds(agree(&vectors)) {
                seen.taken_again += 1;
                let sums = sums_by_lanes(&layout, &vectors);
                assert_eq!(sums, expected(&vectors), "{place}: a layout that is taken again");
            }
        }
    }
    seen
}

/// Vectors near these: other kinds, and all exponents moved by a few.
fn again<E: Element>(vectors: &[Vec<E>], random: &mut Pcg64Mcg) -> Vec<Vectors<E>> {
    let (ranks, len) = (vectors.len(), vectors[0].len());
    let kind = Kind::ALL[(random.next_u64() % 9) as usize];
    let mut all = vec![draw(kind, ranks, len, random)];
    for exponents in [-40_i64, -9, -2, -1, 1, 2, 9] {
        all.push(
            vectors
                .iter()
                .map(|values| values.iter().map(|&value| moved(value, exponents)).collect())
                .collect(),
        );
    }
    all
}

/// The value with another exponent, unless it is zero or would become infinite.
fn moved<E: Element>(value: E, exponents: i64) -> E {
    let bits = value.to_bits_u64();
    let magnitudes = (1_u64 << (E::PRECISION - 1 + E::EXPONENT_BITS)) - 1;
    let magnitude = (bits & magnitudes).saturating_add_signed(exponents << (E::PRECISION - 1));
    let is_changed = bits & magnitudes != 0 && magnitude < infinity::<E>();
    E::from_bits_u64(if is_changed { bits & !magnitudes | magnitude } else { bits })
}

#[test]
fn added_lanes_are_the_sums_of_all_ranks() {
    let seen =
        [check::<f16>(1, 960), check::<bf16>(2, 960), check::<f32>(3, 960), check::<f64>(4, 960)];
    for (format, seen) in seen.iter().enumerate() {
        assert!(seen.lanes[1..3].iter().all(|&count| count > 50), "format {format}");
        assert!(seen.taken_again > 500, "format {format}: {}", seen.taken_again);
    }
    assert!(seen[1..].iter().all(|seen| seen.lanes[3] > 10 && seen.lanes[4] > 50));
}

/// Sums of values from a number of exponents on, the first of which cancel but for a little.
fn check_digits<E: Element + Format<Rounded = E>>(digits: u32, random: &mut Pcg64Mcg) {
    const DIGIT_BITS: u32 = 57;
    let least = ((digits - 1) * DIGIT_BITS + 1).max(E::PRECISION);
    let bits = least + (random.next_u64() % u64::from(digits * DIGIT_BITS - least + 1)) as u32;
    let exponents = u64::from(bits - E::PRECISION) + 1;
    let fields = (1_u64 << E::EXPONENT_BITS) - 2;
    let first = 1 + [0, random.next_u64() % (fields - exponents + 1), fields - exponents]
        [(random.next_u64() % 3) as usize];
    let sign_at = E::PRECISION - 1 + E::EXPONENT_BITS;
    let mut value = |exponent: u64| {
        let draw = random.next_u64();
        let fractions = (1 << (E::PRECISION - 1)) - 1;
        let fraction = [0, 1, fractions, draw][(draw >> 60) as usize % 4] & fractions;
        E::from_bits_u64(
            draw >> 63 << sign_at | (first + exponent) << (E::PRECISION - 1) | fraction,
        )
    };
    let mut vectors: Vectors<E> = vec![vec![value(0), value(exponents - 1)]; 5];
    for at in 0..30 {
        let large = value(exponents - 1 - at % exponents);
        let less = large.to_bits_u64() ^ (1 << sign_at) ^ (at / 8);
        let others = [value(at % exponents), value(7 * at % exponents), value(0)];
        let all = [large, E::from_bits_u64(less), others[0], others[1], others[2]];
        let few = 2 + (at % 4) as usize;
        for (rank, (values, value)) in vectors.iter_mut().zip(all).enumerate() {
            values.push(if rank < few { value } else { E::from_bits_u64(0) });
        }
    }
    let layout = Layout::new::<E>(agree(&vectors), 64);
    let place = format!("format {} first {first} exponents {exponents}", E::CODE);
    assert_eq!(layout.lanes_per_element(), digits as usize, "{place}");
    assert_eq!(sums_by_lanes(&layout, &vectors), expected(&vectors), "{place}");
}

#[test]
fn sums_that_cancel_are_exact_with_any_number_of_digits() {
    let mut random = Pcg64Mcg::new(9);
    for round in 0..1500 {
        check_digits::<f64>(1 + round % 6, &mut random);
        check_digits::<f32>(1 + round % 4, &mut random);
        check_digits::<bf16>(1 + round % 4, &mut random);
    }
}

/// The sum of `ranks` times the value.
fn multiple<E: Element + Format<Rounded = E>>(value: E, ranks: u32) -> u64 {
    let mut power = Accumulator::<E>::default();
    power.add(value);
    let mut sum = Accumulator::<E>::default();
    for bit in 0..32 {
        if ranks >> bit & 1 == 1 {
            sum.merge(&power).unwrap();
        }
        power.merge(&power.clone()).unwrap();
    }
    sum.round().to_bits_u64()
}

/// Spans between many values, and from all ranks those that have the most bits in them.
fn check_extremes<E: Element + Format<Rounded = E>>() {
    let sign = 1 << (E::PRECISION - 1 + E::EXPONENT_BITS);
    let one = 1_u64 << (E::PRECISION - 1);
    let largest = infinity::<E>() - 1;
    let lows = [1, one, 2 * one, largest / 2, largest];
    let highs = [1, one - 1, 2 * one - 1, 9 * one - 1, largest / 2, largest];
    for (low, high) in lows.into_iter().flat_map(|low| highs.map(|high| (low, high))) {
        let finite = [low, high, low | sign, high | sign, 0];
        let infinity = infinity::<E>();
        let others = [infinity, infinity | sign, infinity + 1, sign];
        let all = [&finite[..], &others].concat();
        for ranks in
            [1, 2, 3, 4, 64, 65, 1 << 20, (1 << 20) + 1, (1 << 21) - 1, 1 << 21, MOST_RANKS]
        {
            check_multiples::<E>(&finite, ranks);
            check_multiples::<E>(&all, ranks);
        }
    }
}

/// A vector of values with these bits, the same one from all ranks.
fn check_multiples<E: Element + Format<Rounded = E>>(bits: &[u64], ranks: u32) {
    let values: Vec<E> = bits.iter().map(|&bits| E::from_bits_u64(bits)).collect();
    let layout = Layout::new::<E>(Span::of(&values), ranks);
    let mut lanes = vec![0_i64; values.len() * layout.lanes_per_element()];
    layout.write(&values, &mut lanes);
    for lane in &mut lanes {
        *lane = lane.checked_mul(ranks.into()).expect("lanes have room for all ranks");
    }
    let mut sums = values.clone();
    layout.read(&lanes, &mut sums);
    let place = format!("format {} {bits:#x?} {ranks} ranks", E::CODE);
    for (sum, value) in sums.into_iter().zip(values) {
        assert_eq!(sum.to_bits_u64(), multiple(value, ranks), "{place}");
    }
}

#[test]
fn all_ranks_may_give_the_largest_and_the_smallest_values() {
    check_extremes::<f16>();
    check_extremes::<bf16>();
    check_extremes::<f32>();
    check_extremes::<f64>();
}

#[test]
fn classes_of_up_to_three_contributions_are_those_of_an_accumulator() {
    let samples =
        [0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, 5e-324];
    let all = |first: f64, second: f64| samples.map(|third| vec![first, second, third]);
    let columns: Vec<Vec<f64>> = samples
        .into_iter()
        .flat_map(|first| samples.into_iter().flat_map(move |second| all(first, second)))
        .collect();
    let rank = |rank: usize| columns.iter().map(|values| values[rank]).collect::<Vec<f64>>();
    let vectors = [rank(0), rank(1), rank(2)];
    for ranks in [3, (1 << 21) - 1, 1 << 21, MOST_RANKS] {
        let layout = Layout::new::<f64>(agree(&vectors), ranks);
        assert_eq!(sums_by_lanes(&layout, &vectors), expected(&vectors), "{ranks} ranks");
    }
}

#[test]
fn two_values_of_16_bits_have_the_sum_of_an_accumulator_whatever_they_are() {
    fn check<E: Element + Format<Rounded = E>>() {
        let mut random = Pcg64Mcg::new(u128::from(E::PRECISION));
        let all: Vec<E> = (0..1 << 16).map(E::from_bits_u64).collect();
        for _ in 0..8 {
            let [stride, first] = [random.next_u64() | 1, random.next_u64()];
            let other =
                |at: u64| E::from_bits_u64(at.wrapping_mul(stride).wrapping_add(first) & 0xffff);
            let others: Vec<E> = (0..1 << 16).map(other).collect();
            let mut sums = all.clone();
            sum_two(&mut sums, &all, &others);
            let bits: Vec<u64> = sums.into_iter().map(Element::to_bits_u64).collect();
            let wanted = expected(&[all.clone(), others.clone()]);
            let wrong = (0..1 << 16).find(|&at| bits[at] != wanted[at]);
            let wrong = wrong.map(|at| (all[at], others[at], bits[at], wanted[at]));
            assert_eq!(wrong, None, "what is added, found and expected");
        }
    }
    check::<f16>();
    check::<bf16>();
}

#[test]
fn spans_are_those_of_every_value() {
    fn check<E: Element>(bits: impl Iterator<Item = u64>) {
        for bits in bits {
            let value = E::from_bits_u64(bits);
            let span = Span::of(&[value]);
            let field = bits >> (E::PRECISION - 1) & ((1 << E::EXPONENT_BITS) - 1);
            let magnitude = bits & ((1 << (E::PRECISION - 1 + E::EXPONENT_BITS)) - 1);
            let is_finite = magnitude < infinity::<E>();
            let position = field.max(1) as i64 - 1;
            let [lowest, end] = match magnitude {
                0 => [-i64::from(u32::MAX), 0],
                _ if is_finite => [-position, position + i64::from(E::PRECISION)],
                _ => [-i64::from(u32::MAX), 0],
            };
            let is_negative_zero = magnitude == 0 && bits != 0;
            let maxima = [lowest, end, i64::from(!is_finite), i64::from(is_negative_zero)];
            assert_eq!(span.to_maxima(), maxima, "{bits:#x} of format {}", E::CODE);
        }
    }
    check::<f16>(0..1 << 16);
    check::<bf16>(0..1 << 16);
    check::<f32>((0..1 << 16).flat_map(|high| [0, 1, 0xffff].map(|low| high << 16 | low)));
    let lows = [0, 1, 1 << 31, 1 << 32, (1 << 48) - 1];
    check::<f64>((0..1 << 16).flat_map(|high| lows.map(|low| high << 48 | low)));
}

#[test]
fn a_few_exponents_take_one_lane_and_more_take_as_many_as_they_need() {
    let lanes =
        |values: &[f64], ranks| Layout::new::<f64>(Span::of(values), ranks).lanes_per_element();
    assert_eq!(lanes(&[], 64), 1);
    assert_eq!(lanes(&[0.0], MOST_RANKS), 1);
    // 57 bits a lane.
    assert_eq!(lanes(&[1.0, 31.0], 64), 1);
    assert_eq!(lanes(&[1.0, 32.0], 64), 2);
    assert_eq!(lanes(&[1.0, 2_f64.powi(61)], 64), 2);
    assert_eq!(lanes(&[1.0, 2_f64.powi(62)], 64), 3);
    assert_eq!(lanes(&[1.0, -0.0], 64), 2);
    assert_eq!(lanes(&[1.0, f64::NAN], (1 << 21) - 1), 3);
    assert_eq!(lanes(&[1.0, f64::NAN], 1 << 21), 5);
    assert_eq!(lanes(&[f64::MAX, 5e-324], 64), 37);
    let layout = Layout::new::<f32>(Span::of(&[1.0_f32]), 64);
    assert!(layout.holds(Span::of(&[2_f32.powi(-25), 2_f32.powi(8)])));
    assert!(!layout.holds(Span::of(&[2_f32.powi(-26)])));
    assert!(!layout.holds(Span::of(&[2_f32.powi(9)])));
    assert!(!layout.holds(Span::of(&[-0.0_f32])));
    assert!(layout.holds(Span::EMPTY));
}

#[test]
fn maxima_that_no_span_has_are_refused() {
    let good = Span::of(&[1.0_f64]).to_maxima();
    assert_eq!(Span::from_maxima(good), Some(Span::of(&[1.0_f64])));
    assert_eq!(Span::from_maxima(Span::EMPTY.to_maxima()), Some(Span::EMPTY));
    for (at, integers) in [
        (0, &[1, i64::MIN, i64::MAX, -good[1], -i64::from(u32::MAX), -(1 << 32)][..]),
        (1, &[0, -1, 2099, i64::MIN, i64::MAX, -good[0]]),
        (2, &[-1, 2, i64::MAX]),
        (3, &[-1, 2, i64::MIN]),
    ] {
        for &integer in integers {
            let mut maxima = good;
            maxima[at] = integer;
            assert_eq!(Span::from_maxima(maxima), None, "{integer} at {at}");
        }
    }
}

/// A thread whose processor flushes subnormals, or does not round to nearest, reads the sums that others read.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_threads_floating_point_mode_changes_no_sum() {
    use core::arch::asm;
    let mut random = Pcg64Mcg::new(12);
    let default = 0x1f80_u32;
    for mode in [0x2000, 0x4000, 0x6000, 0x8040].map(|mode| default | mode) {
        for exponents in [2_u64, 40, 90] {
            let mut vectors: Vectors<f64> =
                (0..4).map(|_| vector(Kind::FewExponents, 200, &mut random)).collect();
            for value in vectors.iter_mut().flatten() {
                let field = (1023 + random.next_u64() % exponents) << 52;
                *value = f64::from_bits(value.to_bits() & !(0x7ff << 52) | field);
            }
            let layout = Layout::new::<f64>(agree(&vectors), 64);
            // SAFETY: the value is a valid MXCSR, and the default one is back before other code runs.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const mode) };
            let sums = sums_by_lanes(&layout, &vectors);
            // SAFETY: as above.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const default) };
            assert_eq!(sums, expected(&vectors), "mode {mode:#x}, {exponents} exponents");
        }
    }
}

/// No rank can send such lanes, or such a span to ranks with another format. They give some sum.
#[test]
fn any_lanes_and_spans_are_read_without_a_panic() {
    fn check<E: Element>(seed: u128) {
        let mut random = Pcg64Mcg::new(seed);
        for _ in 0..support::fuzz_runs(20_000) {
            let lowest = (random.next_u64() % 2098) as i64;
            let end = lowest + 1 + (random.next_u64() % (2098 - lowest as u64)) as i64;
            let flag = (random.next_u64() & 1) as i64;
            let span = Span::from_maxima([-lowest, end, flag, 0]).unwrap();
            let layout =
                Layout::new::<E>(span, (random.next_u64() >> (32 + random.next_u64() % 32)) as u32);
            let lane = |_| {
                [random.next_u64() as i64, i64::MIN, i64::MAX, -1][random.next_u64() as usize % 4]
            };
            let mut lanes: Vec<i64> = (0..layout.lanes_per_element()).map(lane).collect();
            let mut value = [E::from_bits_u64(0)];
            layout.read(&lanes, &mut value);
            layout.write(&[E::from_bits_u64(random.next_u64())], &mut lanes);
        }
    }
    check::<f16>(1);
    check::<bf16>(2);
    check::<f32>(3);
    check::<f64>(4);
}

#[test]
#[should_panic(expected = "lanes of all values")]
fn another_number_of_lanes_is_refused() {
    Layout::new::<f32>(Span::EMPTY, 2).write(&[0.0_f32], &mut [0, 0]);
}

#[test]
#[should_panic(expected = "the format of the layout")]
fn another_format_is_refused() {
    Layout::new::<f32>(Span::EMPTY, 2).read(&[0], &mut [0.0_f64]);
}
