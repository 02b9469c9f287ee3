//! Test vectors, and their comparison.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use tributary_reduce::Isa;
use tributary_wire::{Datatype, Operator};

/// Every operator with every datatype it combines.
pub(crate) fn combinations() -> impl Iterator<Item = (Operator, Datatype)> {
    Operator::ALL
        .into_iter()
        .filter(|operator| operator.is_reduction())
        .flat_map(|operator| Datatype::ALL.map(|datatype| (operator, datatype)))
        .filter(|(operator, datatype)| operator.applies_to(*datatype))
}

/// The instruction sets that this machine can test.
pub(crate) fn available() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// Elements to combine with each other: extremes, both zeros, NaNs quiet and signalling, subnormals,
/// values that tie.
pub(crate) fn special_elements(datatype: Datatype) -> Vec<Vec<u8>> {
    match datatype {
        Datatype::I8 | Datatype::U8 => bytes_of([0u8, 1, 2, 0x7f, 0x80, 0x81, 0xff]),
        Datatype::I16 | Datatype::U16 => bytes_of([0u16, 1, 0x100, 0x7fff, 0x8000, 0xffff]),
        Datatype::I32 | Datatype::U32 => {
            bytes_of([0, 1, 0x1_0000, i32::MAX, i32::MIN, -1, 0x1234_5678])
        }
        Datatype::I64 | Datatype::U64 => {
            bytes_of([0, 1, 1 << 32, i64::MAX, i64::MIN, -1, 0x0123_4567_89ab_cdef])
        }
        Datatype::F16 => bytes_of([
            0u16, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00,
            0xfc00, 0x7e00, 0xfe12, 0x7c01, 0xfd55, 0x3555, 0x1001,
        ]),
        Datatype::Bf16 => bytes_of([
            0u16, 0x8000, 0x3f80, 0xbf80, 0x0001, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f, 0x7f80,
            0xff80, 0x7fc0, 0xffc5, 0x7f81, 0xffa2, 0x3eab, 0x3381,
        ]),
        Datatype::F32 => bytes_of(SINGLES),
        Datatype::F64 => bytes_of(DOUBLES),
        Datatype::I16Index => pairs(bytes_of([0i16, 1, -1, i16::MAX, i16::MIN]), 4),
        Datatype::I32Index => pairs(bytes_of([0, 1, -1, i32::MAX, i32::MIN]), 4),
        Datatype::I64Index => pairs(bytes_of([0, 1, -1, i64::MAX, i64::MIN]), 8),
        Datatype::F32Index => pairs(bytes_of(SINGLES), 4),
        Datatype::F64Index => pairs(bytes_of(DOUBLES), 8),
        Datatype::F32Complex | Datatype::F32FloatIndex => twos(&bytes_of(SINGLES)),
        Datatype::F64Complex | Datatype::F64FloatIndex => twos(&bytes_of(DOUBLES)),
    }
}

/// Bits of binary32 values: zeros, ones, subnormals, the largest, infinities, NaNs.
const SINGLES: [u32; 15] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xffc1_2345,
    0x7f80_0001,
];

/// The same of binary64.
const DOUBLES: [u64; 15] = [
    0,
    0x8000_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    1,
    0x8000_0000_0000_0001,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0xfff8_1234_5678_9abc,
    0x7ff0_0000_0000_0001,
];

trait LittleEndian {
    fn bytes(self) -> Vec<u8>;
}

macro_rules! little_endian {
    ($($number:ty)*) => {$(
        impl LittleEndian for $number {
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
        }
    )*};
}

little_endian!(u8 i16 u16 i32 u32 i64 u64);

fn bytes_of<T: LittleEndian, const N: usize>(values: [T; N]) -> Vec<Vec<u8>> {
    values.map(LittleEndian::bytes).into()
}

/// Each value with each of a few indices; the padding is not zero, as in a user's buffer.
fn pairs(values: Vec<Vec<u8>>, index_at: usize) -> Vec<Vec<u8>> {
    let mut pairs = Vec::new();
    for value in values {
        for index in [0, 1, 7, i32::MAX, i32::MIN, -1] {
            let mut pair = vec![0xa5; 2 * index_at];
            pair[..value.len()].copy_from_slice(&value);
            pair[index_at..index_at + 4].copy_from_slice(&i32::to_le_bytes(index));
            pairs.push(pair);
        }
    }
    pairs
}

/// Each part with each other.
fn twos(parts: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut elements = Vec::new();
    for first in parts {
        elements.extend(parts.iter().map(|second| [first.as_slice(), second].concat()));
    }
    elements
}

/// `elements` elements: half of them special, half random bits.
pub(crate) fn random_vector(datatype: Datatype, elements: usize, random: &mut Pcg64Mcg) -> Vec<u8> {
    let specials = special_elements(datatype);
    let mut vector = Vec::with_capacity(elements * datatype.size_bytes());
    for _ in 0..elements {
        let choice = random.next_u32() as usize;
        if choice.is_multiple_of(2) {
            vector.extend(&specials[choice / 2 % specials.len()]);
        } else {
            let mut element = vec![0; datatype.size_bytes()];
            random.fill_bytes(&mut element);
            vector.extend(element);
        }
    }
    vector
}

/// Fails unless both vectors hold the same bits. NaNs that a sum or product made may differ in
/// sign and payload: they depend on the processor, as the crate documents.
#[track_caller]
pub(crate) fn assert_same(
    what: &str,
    operator: Operator,
    datatype: Datatype,
    actual: &[u8],
    expected: &[u8],
) {
    assert_eq!(actual.len(), expected.len());
    // The parts of complex numbers are compared one by one.
    let size_bytes = part(datatype).size_bytes();
    let any_nan_will_do = matches!(operator, Operator::Sum | Operator::Product);
    let pairs = actual.chunks_exact(size_bytes).zip(expected.chunks_exact(size_bytes));
    for (element, (actual, expected)) in pairs.enumerate() {
        let same = actual == expected
            || any_nan_will_do
                && is_nan(part(datatype), actual)
                && is_nan(part(datatype), expected);
        assert!(
            same,
            "{what}: {} on {}: element (or part) {element} is {actual:02x?}, should be {expected:02x?}",
            operator.name(),
            datatype.name()
        );
    }
}

/// The datatype of the parts of a complex number; others are their only part.
fn part(datatype: Datatype) -> Datatype {
    match datatype {
        Datatype::F32Complex => Datatype::F32,
        Datatype::F64Complex => Datatype::F64,
        _ => datatype,
    }
}

fn is_nan(datatype: Datatype, element: &[u8]) -> bool {
    match datatype {
        Datatype::F16 => half::f16::from_le_bytes(element.try_into().unwrap()).is_nan(),
        Datatype::Bf16 => half::bf16::from_le_bytes(element.try_into().unwrap()).is_nan(),
        Datatype::F32 => f32::from_le_bytes(element.try_into().unwrap()).is_nan(),
        Datatype::F64 => f64::from_le_bytes(element.try_into().unwrap()).is_nan(),
        _ => false,
    }
}

/// A vector that starts `offset` bytes behind a 64-byte boundary, with guards on both sides.
pub(crate) struct Placed {
    memory: Vec<u8>,
    start: usize,
    len_bytes: usize,
}

const GUARD: u8 = 0xc3;
const GUARD_BYTES: usize = 64;

impl Placed {
    pub(crate) fn new(vector: &[u8], offset: usize) -> Self {
        let mut memory = vec![GUARD; vector.len() + offset + 3 * GUARD_BYTES];
        let start = memory.as_ptr().align_offset(64) + GUARD_BYTES + offset;
        memory[start..start + vector.len()].copy_from_slice(vector);
        Self { memory, start, len_bytes: vector.len() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len_bytes]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len_bytes]
    }

    /// Fails if anything was written beside the vector.
    pub(crate) fn assert_guards(&self) {
        let beside =
            self.memory[..self.start].iter().chain(&self.memory[self.start..][self.len_bytes..]);
        assert!(beside.into_iter().all(|byte| *byte == GUARD), "written beside the vector");
    }
}
