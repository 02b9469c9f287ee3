//! What each operator does with two elements.
//!
//! The types here have the names of the operators and hold no data: a kernel is a loop compiled for one
//! of them.

use crate::element::Pair;
use crate::lanes::Lanes;

/// An operator on elements of type `T`.
pub(crate) trait Operation<T> {
    /// `left OP right`.
    fn combine(left: T, right: T) -> T;
}

/// An operator on several binary32 values at once, for 16-bit floats.
pub(crate) trait LanesOperation {
    /// `left OP right`, lane by lane.
    ///
    /// # Safety
    /// The processor has the instructions of `V`.
    unsafe fn combine_lanes<V: Lanes>(left: V, right: V) -> V;
}

pub(crate) struct Sum;
pub(crate) struct Product;
pub(crate) struct Min;
pub(crate) struct Max;
pub(crate) struct MinLoc;
pub(crate) struct MaxLoc;
pub(crate) struct BitAnd;
pub(crate) struct BitOr;
pub(crate) struct BitXor;
pub(crate) struct LogicalAnd;
pub(crate) struct LogicalOr;
pub(crate) struct LogicalXor;

macro_rules! operations {
    ($operation:ident on $($element:ty)*: |$left:ident, $right:ident| $result:expr) => {$(
        impl Operation<$element> for $operation {
            #[inline(always)]
            fn combine($left: $element, $right: $element) -> $element {
                $result
            }
        }
    )*};
}

macro_rules! lanes_operations {
    ($($operation:ident is $method:ident;)*) => {$(
        impl LanesOperation for $operation {
            #[inline(always)]
            unsafe fn combine_lanes<V: Lanes>(left: V, right: V) -> V {
                // SAFETY: the contract of `combine_lanes`: the processor has the instructions of `V`.
                unsafe { left.$method(right) }
            }
        }
    )*};
}

operations!(Sum on i8 i16 i32 i64 u8 u16 u32 u64: |left, right| left.wrapping_add(right));
operations!(Sum on f32 f64: |left, right| left + right);
operations!(Product on i8 i16 i32 i64 u8 u16 u32 u64: |left, right| left.wrapping_mul(right));
operations!(Product on f32 f64: |left, right| left * right);
// This order of operands is that of `minps` and `maxps`, so one instruction suffices, with NaNs and
// signed zeros included. `f32::min` treats these differently, and takes three instructions.
operations!(Min on i8 i16 i32 i64 u8 u16 u32 u64 f32 f64:
    |left, right| if right < left { right } else { left });
operations!(Max on i8 i16 i32 i64 u8 u16 u32 u64 f32 f64:
    |left, right| if right > left { right } else { left });
// Bitwise operators do not depend on the element's size, so bytes serve for all integers.
operations!(BitAnd on u8: |left, right| left & right);
operations!(BitOr on u8: |left, right| left | right);
operations!(BitXor on u8: |left, right| left ^ right);
// Logical operators only compare with zero, so signedness does not matter. No short circuit: a branch
// would keep the loop scalar.
operations!(LogicalAnd on u8 u16 u32 u64: |left, right| ((left != 0) & (right != 0)).into());
operations!(LogicalOr on u8 u16 u32 u64: |left, right| ((left | right) != 0).into());
operations!(LogicalXor on u8 u16 u32 u64: |left, right| ((left != 0) ^ (right != 0)).into());

lanes_operations! { Sum is add; Product is multiply; Min is min; Max is max; }

impl<V: PartialOrd + Copy> Operation<Pair<V>> for MinLoc {
    #[inline(always)]
    fn combine(left: Pair<V>, right: Pair<V>) -> Pair<V> {
        nearer(right.value < left.value, left, right)
    }
}

impl<V: PartialOrd + Copy> Operation<Pair<V>> for MaxLoc {
    #[inline(always)]
    fn combine(left: Pair<V>, right: Pair<V>) -> Pair<V> {
        nearer(right.value > left.value, left, right)
    }
}

/// `right` if it wins, or ties with a smaller index, else `left`.
#[inline(always)]
fn nearer<V: PartialOrd + Copy>(right_wins: bool, left: Pair<V>, right: Pair<V>) -> Pair<V> {
    let tie_to_right = (right.value == left.value) & (right.index < left.index);
    if right_wins | tie_to_right { right } else { left }
}
