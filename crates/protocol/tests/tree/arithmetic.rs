//! The element arithmetic of these tests: small, plain, and independent of the product's kernels.

use half::{bf16, f16};
use tributary_wire::frame::Shape;
use tributary_wire::{Datatype, Operator};

/// The accumulator that holds one contribution.
pub(crate) fn widen(shape: Shape, wire: &[u8]) -> Vec<u8> {
    match shape.datatype() {
        Datatype::F16 => map(wire, |bytes| f16::from_le_bytes(bytes).to_f32().to_le_bytes()),
        Datatype::Bf16 => map(wire, |bytes| bf16::from_le_bytes(bytes).to_f32().to_le_bytes()),
        _ => wire.to_vec(),
    }
}

/// The wire bytes of an accumulator: the one rounding of 16-bit floats.
pub(crate) fn narrow(shape: Shape, accumulator: &[u8]) -> Vec<u8> {
    match shape.datatype() {
        Datatype::F16 => {
            map(accumulator, |bytes| f16::from_f32(f32::from_le_bytes(bytes)).to_le_bytes())
        }
        Datatype::Bf16 => {
            map(accumulator, |bytes| bf16::from_f32(f32::from_le_bytes(bytes)).to_le_bytes())
        }
        _ => accumulator.to_vec(),
    }
}

/// `accumulator = accumulator OP wire`.
pub(crate) fn combine(shape: Shape, accumulator: &mut [u8], wire: &[u8]) {
    match (shape.operator(), shape.datatype()) {
        (Operator::Sum, Datatype::F64) => {
            zip(accumulator, wire, |a, b| {
                (f64::from_le_bytes(a) + f64::from_le_bytes(b)).to_le_bytes()
            });
        }
        (Operator::Sum, Datatype::F32) => {
            zip(accumulator, wire, |a, b| {
                (f32::from_le_bytes(a) + f32::from_le_bytes(b)).to_le_bytes()
            });
        }
        (Operator::Sum, Datatype::F16) => {
            zip(accumulator, wire, |a, b| {
                (f32::from_le_bytes(a) + f16::from_le_bytes(b).to_f32()).to_le_bytes()
            });
        }
        (Operator::Sum, Datatype::Bf16) => {
            zip(accumulator, wire, |a, b| {
                (f32::from_le_bytes(a) + bf16::from_le_bytes(b).to_f32()).to_le_bytes()
            });
        }
        (Operator::Sum, Datatype::I64) => {
            zip(accumulator, wire, |a, b| {
                i64::from_le_bytes(a).wrapping_add(i64::from_le_bytes(b)).to_le_bytes()
            });
        }
        (Operator::Max, Datatype::I32) => {
            zip(accumulator, wire, |a, b| {
                i32::from_le_bytes(a).max(i32::from_le_bytes(b)).to_le_bytes()
            });
        }
        (Operator::BitXor, Datatype::U64) => {
            zip(accumulator, wire, |a, b| {
                (u64::from_le_bytes(a) ^ u64::from_le_bytes(b)).to_le_bytes()
            });
        }
        other => panic!("these tests have no kernel for {other:?}"),
    }
}

fn map<const FROM: usize, const TO: usize>(
    bytes: &[u8],
    each: impl Fn([u8; FROM]) -> [u8; TO],
) -> Vec<u8> {
    bytes.as_chunks().0.iter().flat_map(|element| each(*element)).collect()
}

fn zip<const A: usize, const B: usize>(
    accumulator: &mut [u8],
    wire: &[u8],
    each: impl Fn([u8; A], [u8; B]) -> [u8; A],
) {
    let (ours, theirs) = (accumulator.as_chunks_mut().0, wire.as_chunks().0);
    assert_eq!(ours.len(), theirs.len(), "as many elements on both sides");
    for (target, source) in ours.iter_mut().zip(theirs) {
        *target = each(*target, *source);
    }
}
