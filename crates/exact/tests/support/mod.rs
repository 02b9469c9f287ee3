//! An oracle of big integers that shares no arithmetic with the crate, and vectors of random and hostile values.
#![allow(dead_code, reason = "every test uses its own part")]

use num_bigint::BigInt;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use tributary_exact::Element;

/// How many hostile inputs a test tries: `usual`, unless `TRIBUTARY_FUZZ_RUNS` says more.
pub(crate) fn fuzz_runs(usual: u64) -> u64 {
    std::env::var("TRIBUTARY_FUZZ_RUNS").map_or(usual, |text| text.parse().expect("a number"))
}

/// The value that IEEE arithmetic on exact sums gives.
pub(crate) struct Oracle {
    sum: BigInt,
    count: usize,
    negative_zeros: usize,
    infinities: [bool; 2],
    has_nan: bool,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let infinities = [false; 2];
        Self { sum: BigInt::ZERO, count: 0, negative_zeros: 0, infinities, has_nan: false }
    }

    pub(crate) fn add<E: Element>(&mut self, value: E) {
        self.count += 1;
        match decode(value) {
            Decoded::Nan => self.has_nan = true,
            Decoded::Infinity(is_negative) => self.infinities[usize::from(is_negative)] = true,
            Decoded::Finite(integer, is_negative) => {
                self.negative_zeros += usize::from(integer == BigInt::ZERO && is_negative);
                self.sum += integer;
            }
        }
    }

    /// Bits of the sum, rounded to nearest, by a search among all values of the format.
    pub(crate) fn round<E: Element>(&self) -> u64 {
        let infinity = infinity::<E>();
        let sign = 1 << (E::PRECISION - 1 + E::EXPONENT_BITS);
        let quiet_nan = infinity | 1 << (E::PRECISION - 2);
        if self.has_nan || self.infinities == [true; 2] {
            quiet_nan
        } else if self.infinities[0] {
            infinity
        } else if self.infinities[1] {
            sign | infinity
        } else if self.sum == BigInt::ZERO {
            if self.count > 0 && self.negative_zeros == self.count { sign } else { 0 }
        } else {
            let is_negative = self.sum < BigInt::ZERO;
            let magnitude = if is_negative { -&self.sum } else { self.sum.clone() };
            nearest::<E>(&magnitude) | if is_negative { sign } else { 0 }
        }
    }
}

/// Bits of the value of the format that is nearest to `magnitude`, of two the even one.
fn nearest<E: Element>(magnitude: &BigInt) -> u64 {
    nearest_scaled::<E>(magnitude, 0)
}

/// The same for a magnitude in units that are `2^scale` times smaller than the smallest value.
pub(crate) fn nearest_scaled<E: Element>(magnitude: &BigInt, scale: u64) -> u64 {
    let value = |bits| finite::<E>(bits) << scale;
    let (mut below, mut above) = (0, infinity::<E>());
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if value(middle) <= *magnitude { below = middle } else { above = middle }
    }
    let (left, right) = (magnitude - value(below), value(above) - magnitude);
    match left.cmp(&right) {
        core::cmp::Ordering::Less => below,
        core::cmp::Ordering::Greater => above,
        core::cmp::Ordering::Equal => below + (below & 1),
    }
}

/// A finite value in units of the smallest.
pub(crate) fn integer<E: Element>(value: E) -> BigInt {
    match decode(value) {
        Decoded::Finite(integer, _) => integer,
        _ => unreachable!("the value is finite"),
    }
}

enum Decoded {
    Nan,
    Infinity(bool),
    Finite(BigInt, bool),
}

fn decode<E: Element>(value: E) -> Decoded {
    let bits = value.to_bits_u64();
    let is_negative = bits >> (E::PRECISION - 1 + E::EXPONENT_BITS) & 1 == 1;
    let magnitude = bits & !(u64::MAX << (E::PRECISION - 1 + E::EXPONENT_BITS));
    match magnitude.cmp(&infinity::<E>()) {
        core::cmp::Ordering::Greater => Decoded::Nan,
        core::cmp::Ordering::Equal => Decoded::Infinity(is_negative),
        core::cmp::Ordering::Less => {
            let integer = finite::<E>(magnitude);
            Decoded::Finite(if is_negative { -integer } else { integer }, is_negative)
        }
    }
}

/// The bits of +infinity.
pub(crate) fn infinity<E: Element>() -> u64 {
    ((1 << E::EXPONENT_BITS) - 1) << (E::PRECISION - 1)
}

/// The finite value with these bits in units of the smallest; of infinity's bits, the value that would follow.
fn finite<E: Element>(bits: u64) -> BigInt {
    let (field, fraction) = (bits >> (E::PRECISION - 1), bits % (1 << (E::PRECISION - 1)));
    match field {
        0 => BigInt::from(fraction),
        _ => BigInt::from(fraction + (1 << (E::PRECISION - 1))) << (field - 1),
    }
}

/// What a vector is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Any bits of finite values.
    AllExponents,
    /// Values within a few exponents.
    FewExponents,
    /// Every value with its negative, and a tiny one.
    Cancelling,
    /// Subnormals, and the smallest normals.
    Subnormal,
    /// The largest values, of both signs.
    Largest,
    /// Powers of two and their neighbours: ties, and long carries.
    Carries,
    /// Infinities, NaNs and zeros among values.
    Special,
    /// Zeros of both signs.
    Zeros,
    /// Zeros of the negative sign.
    NegativeZeros,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::AllExponents,
        Self::FewExponents,
        Self::Cancelling,
        Self::Subnormal,
        Self::Largest,
        Self::Carries,
        Self::Special,
        Self::Zeros,
        Self::NegativeZeros,
    ];
}

/// A vector of `count` values, in random order.
pub(crate) fn vector<E: Element>(kind: Kind, count: usize, random: &mut Pcg64Mcg) -> Vec<E> {
    let middle = random.next_u64() % (infinity::<E>() >> (E::PRECISION - 1));
    let mut values: Vec<E> = (0..count).map(|_| value(kind, middle, random)).collect();
    if matches!(kind, Kind::Cancelling) {
        let sign = 1 << (E::PRECISION - 1 + E::EXPONENT_BITS);
        for pair in values.chunks_exact_mut(2).skip(1) {
            pair[1] = E::from_bits_u64(pair[0].to_bits_u64() ^ sign);
        }
    }
    shuffle(&mut values, random);
    values
}

pub(crate) fn shuffle<T>(values: &mut [T], random: &mut Pcg64Mcg) {
    for at in (1..values.len()).rev() {
        values.swap(at, (random.next_u64() % (at as u64 + 1)) as usize);
    }
}

fn value<E: Element>(kind: Kind, middle: u64, random: &mut Pcg64Mcg) -> E {
    let fraction_bits = E::PRECISION - 1;
    let sign = (random.next_u64() & 1) << (fraction_bits + E::EXPONENT_BITS);
    let draw = random.next_u64();
    let fraction = draw & ((1 << fraction_bits) - 1);
    let magnitude = match kind {
        Kind::AllExponents | Kind::Cancelling => draw % infinity::<E>(),
        Kind::FewExponents => {
            let field = (middle + (draw >> 60)).min((1 << E::EXPONENT_BITS) - 2);
            field << fraction_bits | fraction
        }
        Kind::Subnormal => draw % (3 << fraction_bits),
        Kind::Largest => infinity::<E>() - 1 - draw % 4,
        Kind::Carries => {
            let power = ((draw >> 8) % (infinity::<E>() >> fraction_bits)) << fraction_bits;
            (power + draw % 3).saturating_sub(1)
        }
        Kind::Special => match draw % 64 {
            0 => infinity::<E>(),
            1 if draw & 64 == 0 => infinity::<E>() + 1 + fraction / 2,
            2 => 0,
            _ => draw % infinity::<E>(),
        },
        Kind::Zeros => 0,
        Kind::NegativeZeros => return E::from_bits_u64(1 << (fraction_bits + E::EXPONENT_BITS)),
    };
    E::from_bits_u64(sign | magnitude)
}
