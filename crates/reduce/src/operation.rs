//! What each operator does with two elements.
//!
//! The types here have the names of the operators and hold no data: a kernel is a loop compiled for one
//! of them.

use crate::element::{Complex, Pair};
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
operations!(Min on i8 i16 i32 i64 u8 u16 u32 u64:
    |left, right| if right < left { right } else { left });
operations!(Max on i8 i16 i32 i64 u8 u16 u32 u64:
    |left, right| if right > left { right } else { left });
// A NaN anywhere makes the result a NaN: so no grouping of the contributions changes the result. `f32::min`
// does the opposite, and may take either of two zeros. No short circuit: a branch would keep the loop scalar.
operations!(Min on f32 f64: |left, right| if (right < left) | right.is_nan() { right } else { left });
operations!(Max on f32 f64: |left, right| if (right > left) | right.is_nan() { right } else { left });
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

impl<V: PartialOrd + Copy, I: PartialOrd + Copy> Operation<Pair<V, I>> for MinLoc {
    #[inline(always)]
    fn combine(left: Pair<V, I>, right: Pair<V, I>) -> Pair<V, I> {
        nearer(right.value < left.value, left, right)
    }
}

impl<V: PartialOrd + Copy, I: PartialOrd + Copy> Operation<Pair<V, I>> for MaxLoc {
    #[inline(always)]
    fn combine(left: Pair<V, I>, right: Pair<V, I>) -> Pair<V, I> {
        nearer(right.value > left.value, left, right)
    }
}

/// `right` if it wins, or ties with a smaller index, else `left`. A NaN wins against every number, and ties with
/// another NaN.
#[inline(always)]
fn nearer<V: PartialOrd + Copy, I: PartialOrd + Copy>(
    right_wins: bool,
    left: Pair<V, I>,
    right: Pair<V, I>,
) -> Pair<V, I> {
    let left_is_nan = is_nan(left.value);
    let right_is_nan = is_nan(right.value);
    let ties = (right.value == left.value) | (left_is_nan & right_is_nan);
    let goes_right =
        right_wins | (right_is_nan & !left_is_nan) | (ties & (right.index < left.index));
    if goes_right { right } else { left }
}

/// Only a NaN does not compare with itself.
#[inline(always)]
fn is_nan<V: PartialOrd>(value: V) -> bool {
    value.partial_cmp(&value).is_none()
}

/// The product of complex numbers: four products, a difference and a sum, each rounded. Where both parts
/// come out as NaN, an infinite result is recovered as C does it.
macro_rules! complex_products {
    ($($float:ty, $recovered:ident;)*) => {$(
        impl Operation<Complex<$float>> for Product {
            #[inline(always)]
            fn combine(left: Complex<$float>, right: Complex<$float>) -> Complex<$float> {
                let real = left.real * right.real - left.imaginary * right.imaginary;
                let imaginary = left.real * right.imaginary + left.imaginary * right.real;
                if real.is_nan() & imaginary.is_nan() {
                    return $recovered(left, right).unwrap_or(Complex { real, imaginary });
                }
                Complex { real, imaginary }
            }
        }

        /// The product of an infinite number and another that is not zero, or of finite ones that
        /// overflow, where both parts come out as NaN: an infinite number, as C11 G.5.1 requires
        /// (a number with one infinite part is infinite, even if the other part is NaN). None if the
        /// product is indeed no number.
        #[cold]
        fn $recovered(left: Complex<$float>, right: Complex<$float>) -> Option<Complex<$float>> {
            let zero_for_nan = |part: $float| if part.is_nan() { (0.0 as $float).copysign(part) } else { part };
            let unit_if = |is_unit: bool, part: $float| <$float>::from(u8::from(is_unit)).copysign(part);
            let is_infinite = |it: Complex<$float>| it.real.is_infinite() | it.imaginary.is_infinite();
            // The direction of an infinite number, by parts of 0 and 1.
            let direction = |it: Complex<$float>| Complex {
                real: unit_if(it.real.is_infinite(), it.real),
                imaginary: unit_if(it.imaginary.is_infinite(), it.imaginary),
            };
            let without_nan = |it: Complex<$float>| Complex {
                real: zero_for_nan(it.real),
                imaginary: zero_for_nan(it.imaginary),
            };
            let (mut a, mut b) = (left, right);
            let has_infinite = is_infinite(a) | is_infinite(b);
            if is_infinite(a) {
                (a, b) = (direction(a), without_nan(b));
            }
            if is_infinite(b) {
                (a, b) = (without_nan(a), direction(b));
            }
            let overflows = [
                a.real * b.real,
                a.imaginary * b.imaginary,
                a.real * b.imaginary,
                a.imaginary * b.real,
            ]
            .into_iter()
            .any(<$float>::is_infinite);
            if !has_infinite {
                if !overflows {
                    return None;
                }
                (a, b) = (without_nan(a), without_nan(b));
            }
            Some(Complex {
                real: <$float>::INFINITY * (a.real * b.real - a.imaginary * b.imaginary),
                imaginary: <$float>::INFINITY * (a.real * b.imaginary + a.imaginary * b.real),
            })
        }
    )*};
}

complex_products! { f32, recovered_single; f64, recovered_double; }
