//! The loops of all kernels, written once and compiled for each instruction set.
//!
//! Loops over [`Element`]s are plain Rust. The compiler vectorises them with the instructions of the
//! function that they are inlined into; `arch` owns those functions. The slices stay references down to
//! the loop, so the compiler knows that they do not overlap.

use core::marker::PhantomData;

use crate::element::Element;
use crate::operation::Operation;

/// Work on one slice.
pub(crate) trait One {
    /// Changes `target` in place.
    ///
    /// # Safety
    /// The processor has the instruction set that the body was written for.
    unsafe fn run(target: &mut [u8]);
}

/// Work on one slice with another.
pub(crate) trait Two {
    /// Changes `target` in place, using `source`.
    ///
    /// # Safety
    /// The processor has the instruction set that the body was written for.
    unsafe fn run(target: &mut [u8], source: &[u8]);
}

/// Work that makes one slice from two others.
pub(crate) trait Three {
    /// Overwrites `target` with the result of `left` and `right`.
    ///
    /// # Safety
    /// The processor has the instruction set that the body was written for.
    unsafe fn run(target: &mut [u8], left: &[u8], right: &[u8]);
}

/// `target = target OP source`.
pub(crate) struct Fold<T, O>(PhantomData<(T, O)>);

impl<T: Element, O: Operation<T>> Two for Fold<T, O> {
    #[inline(always)]
    unsafe fn run(target: &mut [u8], source: &[u8]) {
        for (target, source) in T::elements_mut(target).iter_mut().zip(T::elements(source)) {
            *target = O::combine(T::load(*target), T::load(*source)).store();
        }
    }
}

/// `target = left OP right`.
pub(crate) struct Combine<T, O>(PhantomData<(T, O)>);

impl<T: Element, O: Operation<T>> Three for Combine<T, O> {
    #[inline(always)]
    unsafe fn run(target: &mut [u8], left: &[u8], right: &[u8]) {
        let operands = T::elements(left).iter().zip(T::elements(right));
        for (target, (left, right)) in T::elements_mut(target).iter_mut().zip(operands) {
            *target = O::combine(T::load(*left), T::load(*right)).store();
        }
    }
}
