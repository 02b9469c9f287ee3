//! The encoding: what is written is read again, everything else is refused, and the book's tables are true.

#![allow(clippy::unwrap_used, reason = "a test may unwrap, its helpers too")]

mod support;

use half::{bf16, f16};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use support::{Kind, shuffle, vector};
use tributary_exact::{
    Accumulator, Class, DecodeError, Element, Format, HEADER_BYTES, Products, VERSION, Window,
    encoded_bytes_max,
};

fn encoded<F: Format>(window: &Window<F>) -> Vec<u8> {
    let mut bytes = vec![0xaa; encoded_bytes_max::<F>()];
    let len = window.encode(&mut bytes).unwrap();
    bytes.truncate(len);
    assert_eq!(window.encode(&mut vec![0; len - 1]), None);
    bytes
}

fn check_round_trips<E: Element + Format<Rounded = E>>(seed: u128) {
    let mut random = Pcg64Mcg::new(seed);
    for round in 0..450 {
        let kind = Kind::ALL[round % Kind::ALL.len()];
        let mut values: Vec<E> = vector(kind, round % 37, &mut random);
        let mut sum = Accumulator::<E>::default();
        values.iter().for_each(|&value| sum.add(value));
        let bytes = encoded(&sum.to_window());
        assert_eq!(Window::<E>::decode(&bytes), Ok(sum.to_window()), "seed {seed} round {round}");
        shuffle(&mut values, &mut random);
        let mut merged = Window::<E>::default();
        values.iter().for_each(|&value| merged.merge(&value.into()).unwrap());
        assert_eq!(encoded(&merged), bytes, "seed {seed} round {round}: one sum, two encodings");
    }
}

#[test]
fn sums_are_read_as_written_and_equal_sums_have_equal_bytes() {
    check_round_trips::<f16>(1);
    check_round_trips::<bf16>(2);
    check_round_trips::<f32>(3);
    check_round_trips::<f64>(4);
}

#[test]
fn every_lie_is_refused_with_its_reason() {
    let bytes = |first: u8, words: &[u64]| {
        let mut bytes = vec![VERSION, 4, Class::Finite as u8, first, words.len() as u8, 0, 0, 0];
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    };
    let good = bytes(3, &[5, 6]);
    assert_eq!(encoded(&Window::<f64>::decode(&good).unwrap()), good);
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        Window::<f64>::decode(&bytes).unwrap_err()
    };
    assert_eq!(Window::<f64>::decode(&good[..7]), Err(DecodeError::Short { len_bytes: 7 }));
    assert_eq!(changed(0, 2), DecodeError::Version(2));
    assert_eq!(changed(1, 3), DecodeError::Format(3));
    assert_eq!(changed(2, 6), DecodeError::Class(6));
    assert_eq!(changed(2, Class::Nan as u8), DecodeError::WordsWithoutInteger);
    assert_eq!(changed(2, Class::NegativeZero as u8), DecodeError::WordsWithoutInteger);
    assert_eq!(changed(3, 33), DecodeError::Place { first: 33, words: 2 });
    assert_eq!(changed(3, 255), DecodeError::Place { first: 255, words: 2 });
    assert_eq!(changed(4, 0), DecodeError::Place { first: 3, words: 0 });
    let announced = DecodeError::Length { len_bytes: 24, announced_bytes: 32 };
    assert_eq!(changed(4, 3), announced);
    (5..8).for_each(|at| assert_eq!(changed(at, 1), DecodeError::Reserved));
    let refused = |first, words: &[u64]| Window::<f64>::decode(&bytes(first, words)).unwrap_err();
    assert_eq!(refused(0, &[0, 1]), DecodeError::NotCanonical);
    assert_eq!(refused(0, &[1, 0]), DecodeError::NotCanonical);
    assert_eq!(refused(0, &[u64::MAX, u64::MAX]), DecodeError::NotCanonical);
    assert_eq!(refused(0, &[0]), DecodeError::NotCanonical);
    assert_eq!(refused(33, &[1 << 62]), DecodeError::OutOfRange);
    assert_eq!(refused(33, &[2 << 62]), DecodeError::OutOfRange);
    assert!(Window::<f64>::decode(&bytes(33, &[3 << 62])).is_ok());
    assert!(Window::<f64>::decode(&bytes(0, &[1 << 63, 0])).is_ok());
}

/// What is accepted is canonical, and merges without harm.
fn fuzz<F: Format>(bytes: &[u8], sum: &mut Window<F>) -> bool {
    let Ok(window) = Window::<F>::decode(bytes) else { return false };
    assert_eq!(encoded(&window), bytes);
    let mut accumulator = Accumulator::<F>::default();
    accumulator.merge_window(&window).unwrap();
    assert_eq!(accumulator.to_window(), window);
    let before = *sum;
    match sum.merge(&window) {
        Ok(()) => {
            let mut other = window;
            other.merge(&before).unwrap();
            assert_eq!(*sum, other, "a merge is commutative");
        }
        Err(_) => assert_eq!(*sum, before),
    }
    let _ = sum.round();
    true
}

/// Bytes that are often nearly right.
fn hostile_bytes(random: &mut Pcg64Mcg) -> Vec<u8> {
    let draw = random.next_u64();
    let words = draw as u8 % 12;
    let mut bytes = vec![VERSION, (draw >> 8) as u8 % 7, (draw >> 16) as u8 % 3, 0, words, 0, 0, 0];
    bytes[3] = (draw >> 24) as u8 % if draw >> 63 == 0 { 4 } else { 70 };
    for _ in 0..words {
        let word = random.next_u64();
        let word = [word, 0, u64::MAX, 1 << 62, 1 << 63, word >> 60][(word >> 32) as usize % 6];
        bytes.extend(word.to_le_bytes());
    }
    if draw >> 40 & 7 == 0 {
        let at = (draw >> 44) as usize % bytes.len();
        bytes[at] ^= 1 << (draw >> 60 & 7);
    }
    bytes.truncate(bytes.len() - usize::from(draw >> 52 & 31 == 0));
    bytes
}

#[test]
fn fuzz_smoke_of_the_decoder() {
    let mut random = Pcg64Mcg::new(11);
    let mut accepted = 0;
    let (mut halves, mut singles) = (Window::<f16>::default(), Window::<f32>::default());
    let (mut doubles, mut products) =
        (Window::<f64>::default(), Window::<Products<f64>>::default());
    for _ in 0..support::fuzz_runs(100_000) {
        let bytes = hostile_bytes(&mut random);
        accepted += u32::from(fuzz(&bytes, &mut halves));
        accepted += u32::from(fuzz(&bytes, &mut singles));
        accepted += u32::from(fuzz(&bytes, &mut doubles));
        accepted += u32::from(fuzz(&bytes, &mut products));
    }
    assert!(accepted > 1000, "only {accepted} inputs came past the checks");
}

#[test]
fn the_book_tells_the_formats_and_the_header() {
    let page = include_str!("../../../docs/exact-sums.md");
    let row = |name: &str, code: u8, unit: i32, words: usize, bits: i32| {
        let room = 64 * words as i32 - 2 - bits;
        let row = format!("| {code} | {name} | 2^{unit} | {words} | 2^{room} |");
        assert!(page.contains(&row), "{row}");
    };
    /// The bits of the largest value, in units.
    fn bits<F: Format>(factors: i32) -> i32 {
        factors * (1 << (F::Rounded::EXPONENT_BITS - 1)) - F::UNIT
    }
    row("binary16", f16::CODE, f16::UNIT, f16::WORDS, bits::<f16>(1));
    row("bfloat16", bf16::CODE, bf16::UNIT, bf16::WORDS, bits::<bf16>(1));
    row("binary32", f32::CODE, f32::UNIT, f32::WORDS, bits::<f32>(1));
    row("binary64", f64::CODE, f64::UNIT, f64::WORDS, bits::<f64>(1));
    type Singles = Products<f32>;
    let (code, unit) = (Singles::CODE, Singles::UNIT);
    row("products of two binary32", code, unit, Singles::WORDS, bits::<Singles>(2));
    type Doubles = Products<f64>;
    let (code, unit) = (Doubles::CODE, Doubles::UNIT);
    row("products of two binary64", code, unit, Doubles::WORDS, bits::<Doubles>(2));
    assert!(page.contains(&format!("| 0 | 1 | version | {VERSION} |")));
    assert!(page.contains(&format!("| {HEADER_BYTES} | 8 × words | window |")));
}
