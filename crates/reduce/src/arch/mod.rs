//! One file for each instruction set: how its functions are compiled, and its [`Lanes`].

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod portable;

use crate::body::{One, Three, Two};
use crate::lanes::Lanes;

/// A compiled [`One`]. Calling it is safe where the processor has the instruction set.
pub(crate) type OneFunction = unsafe fn(&mut [u8]);

/// A compiled [`Two`]. Calling it is safe where the processor has the instruction set.
pub(crate) type TwoFunction = unsafe fn(&mut [u8], &[u8]);

/// A compiled [`Three`]. Calling it is safe where the processor has the instruction set.
pub(crate) type ThreeFunction = unsafe fn(&mut [u8], &[u8], &[u8]);

/// An instruction set to compile bodies for.
pub(crate) trait Arch {
    /// Its binary32 registers.
    type Wide: Lanes;

    /// `B`, compiled for this instruction set.
    fn one<B: One>() -> OneFunction;

    /// `B`, compiled for this instruction set.
    fn two<B: Two>() -> TwoFunction;

    /// `B`, compiled for this instruction set.
    fn three<B: Three>() -> ThreeFunction;
}

/// The three functions that compile a body under the given attributes.
macro_rules! compile {
    ($(#[$attribute:meta])*) => {
        $(#[$attribute])*
        fn one<B: One>(target: &mut [u8]) {
            // SAFETY: `B::run` needs the instruction set that the attribute of this function enables.
            unsafe { B::run(target) }
        }

        $(#[$attribute])*
        fn two<B: Two>(target: &mut [u8], source: &[u8]) {
            // SAFETY: as in `one`.
            unsafe { B::run(target, source) }
        }

        $(#[$attribute])*
        fn three<B: Three>(target: &mut [u8], left: &[u8], right: &[u8]) {
            // SAFETY: as in `one`.
            unsafe { B::run(target, left, right) }
        }
    };
}
pub(crate) use compile;
