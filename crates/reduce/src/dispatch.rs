//! The table of kernels: the functions for each operator, datatype and instruction set.

use tributary_wire::{Datatype, Operator};

use crate::Isa;
use crate::arch::{Arch, OneFunction, ThreeFunction, TwoFunction, portable::Portable};
#[cfg(target_arch = "x86_64")]
use crate::arch::{avx2::Avx2, avx512::Avx512};
use crate::body::{Combine, Fold};
use crate::element::{Complex, Element, Pair};
use crate::half_body::{CombineHalf, FoldHalf, FoldWide, Narrow, Widen};
use crate::lanes::{Bf16, F16, Half};
use crate::operation::*;

/// The functions of a [`crate::Kernel`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Functions {
    /// `target = target OP source`.
    pub(crate) fold: TwoFunction,
    /// `target = left OP right`.
    pub(crate) combine: ThreeFunction,
}

/// The functions of an [`crate::Accumulation`] of 16-bit floats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideFunctions {
    /// Widens the first contribution.
    pub(crate) begin: TwoFunction,
    /// Folds a 16-bit contribution into the binary32 accumulator.
    pub(crate) fold: TwoFunction,
    /// Rounds the accumulator into its first half.
    pub(crate) finish: OneFunction,
}

/// The functions for `operator` on `datatype`; `None` if it is not defined there, or if the
/// processor does not have `isa`.
pub(crate) fn functions(isa: Isa, operator: Operator, datatype: Datatype) -> Option<Functions> {
    if !isa.is_available() {
        return None;
    }
    match isa {
        Isa::Portable => by_operator::<Portable>(operator, datatype),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => by_operator::<Avx2>(operator, datatype),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => by_operator::<Avx512>(operator, datatype),
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 | Isa::Avx512 => None,
    }
}

/// The functions that accumulate `datatype` in a wider one; `None` if `operator` is not defined on
/// it, if it is not a 16-bit float, or if the processor does not have `isa`.
pub(crate) fn wide_functions(
    isa: Isa,
    operator: Operator,
    datatype: Datatype,
) -> Option<WideFunctions> {
    if !isa.is_available() {
        return None;
    }
    match isa {
        Isa::Portable => wide_by_operator::<Portable>(operator, datatype),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => wide_by_operator::<Avx2>(operator, datatype),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => wide_by_operator::<Avx512>(operator, datatype),
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2 | Isa::Avx512 => None,
    }
}

fn by_operator<A: Arch>(operator: Operator, datatype: Datatype) -> Option<Functions> {
    match operator {
        Operator::Sum => arithmetic::<A, Sum>(datatype).or_else(|| complex_sum::<A>(datatype)),
        Operator::Product => {
            arithmetic::<A, Product>(datatype).or_else(|| complex_product::<A>(datatype))
        }
        Operator::Min => arithmetic::<A, Min>(datatype),
        Operator::Max => arithmetic::<A, Max>(datatype),
        Operator::MinLoc => located_functions::<A, MinLoc>(datatype),
        Operator::MaxLoc => located_functions::<A, MaxLoc>(datatype),
        Operator::BitAnd => bitwise::<A, BitAnd>(datatype),
        Operator::BitOr => bitwise::<A, BitOr>(datatype),
        Operator::BitXor => bitwise::<A, BitXor>(datatype),
        Operator::LogicalAnd => logical::<A, LogicalAnd>(datatype),
        Operator::LogicalOr => logical::<A, LogicalOr>(datatype),
        Operator::LogicalXor => logical::<A, LogicalXor>(datatype),
        Operator::Barrier | Operator::Broadcast => None,
    }
}

fn wide_by_operator<A: Arch>(operator: Operator, datatype: Datatype) -> Option<WideFunctions> {
    match operator {
        Operator::Sum => wide::<A, Sum>(datatype),
        Operator::Product => wide::<A, Product>(datatype),
        Operator::Min => wide::<A, Min>(datatype),
        Operator::Max => wide::<A, Max>(datatype),
        _ => None,
    }
}

/// An operator on every number that is not complex.
trait Arithmetic:
    Operation<i8>
    + Operation<i16>
    + Operation<i32>
    + Operation<i64>
    + Operation<u8>
    + Operation<u16>
    + Operation<u32>
    + Operation<u64>
    + Operation<f32>
    + Operation<f64>
    + LanesOperation
{
}

impl Arithmetic for Sum {}
impl Arithmetic for Product {}
impl Arithmetic for Min {}
impl Arithmetic for Max {}

fn arithmetic<A: Arch, O: Arithmetic>(datatype: Datatype) -> Option<Functions> {
    Some(match datatype {
        Datatype::I8 => elements::<A, i8, O>(),
        Datatype::I16 => elements::<A, i16, O>(),
        Datatype::I32 => elements::<A, i32, O>(),
        Datatype::I64 => elements::<A, i64, O>(),
        Datatype::U8 => elements::<A, u8, O>(),
        Datatype::U16 => elements::<A, u16, O>(),
        Datatype::U32 => elements::<A, u32, O>(),
        Datatype::U64 => elements::<A, u64, O>(),
        Datatype::F16 => halves::<A, F16, O>(),
        Datatype::Bf16 => halves::<A, Bf16, O>(),
        Datatype::F32 => elements::<A, f32, O>(),
        Datatype::F64 => elements::<A, f64, O>(),
        _ => return None,
    })
}

/// A sum of complex numbers is that of their parts.
fn complex_sum<A: Arch>(datatype: Datatype) -> Option<Functions> {
    match datatype {
        Datatype::F32Complex => Some(elements::<A, f32, Sum>()),
        Datatype::F64Complex => Some(elements::<A, f64, Sum>()),
        _ => None,
    }
}

fn complex_product<A: Arch>(datatype: Datatype) -> Option<Functions> {
    match datatype {
        Datatype::F32Complex => Some(elements::<A, Complex<f32>, Product>()),
        Datatype::F64Complex => Some(elements::<A, Complex<f64>, Product>()),
        _ => None,
    }
}

/// An operator on every pair.
trait Located:
    Operation<Pair<i16>>
    + Operation<Pair<i32>>
    + Operation<Pair<i64>>
    + Operation<Pair<f32>>
    + Operation<Pair<f64>>
    + Operation<Pair<f32, f32>>
    + Operation<Pair<f64, f64>>
{
}

impl Located for MinLoc {}
impl Located for MaxLoc {}

fn located_functions<A: Arch, O: Located>(datatype: Datatype) -> Option<Functions> {
    Some(match datatype {
        Datatype::I16Index => elements::<A, Pair<i16>, O>(),
        Datatype::I32Index => elements::<A, Pair<i32>, O>(),
        Datatype::I64Index => elements::<A, Pair<i64>, O>(),
        Datatype::F32Index => elements::<A, Pair<f32>, O>(),
        Datatype::F64Index => elements::<A, Pair<f64>, O>(),
        Datatype::F32FloatIndex => elements::<A, Pair<f32, f32>, O>(),
        Datatype::F64FloatIndex => elements::<A, Pair<f64, f64>, O>(),
        _ => return None,
    })
}

fn bitwise<A: Arch, O: Operation<u8>>(datatype: Datatype) -> Option<Functions> {
    datatype.is_integer().then(elements::<A, u8, O>)
}

fn logical<A: Arch, O>(datatype: Datatype) -> Option<Functions>
where
    O: Operation<u8> + Operation<u16> + Operation<u32> + Operation<u64>,
{
    Some(match datatype {
        Datatype::I8 | Datatype::U8 => elements::<A, u8, O>(),
        Datatype::I16 | Datatype::U16 => elements::<A, u16, O>(),
        Datatype::I32 | Datatype::U32 => elements::<A, u32, O>(),
        Datatype::I64 | Datatype::U64 => elements::<A, u64, O>(),
        _ => return None,
    })
}

fn wide<A: Arch, O: LanesOperation>(datatype: Datatype) -> Option<WideFunctions> {
    match datatype {
        Datatype::F16 => Some(wide_halves::<A, F16, O>()),
        Datatype::Bf16 => Some(wide_halves::<A, Bf16, O>()),
        _ => None,
    }
}

fn elements<A: Arch, T: Element, O: Operation<T>>() -> Functions {
    Functions { fold: A::two::<Fold<T, O>>(), combine: A::three::<Combine<T, O>>() }
}

fn halves<A: Arch, H: Half, O: LanesOperation>() -> Functions {
    Functions {
        fold: A::two::<FoldHalf<H, O, A::Wide>>(),
        combine: A::three::<CombineHalf<H, O, A::Wide>>(),
    }
}

fn wide_halves<A: Arch, H: Half, O: LanesOperation>() -> WideFunctions {
    WideFunctions {
        begin: A::two::<Widen<H, A::Wide>>(),
        fold: A::two::<FoldWide<H, O, A::Wide>>(),
        finish: A::one::<Narrow<H, A::Wide>>(),
    }
}
