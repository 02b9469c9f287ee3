//! How this thread's processor adds floats. A program may have set another mode than the usual one, and so may a library that is
//! compiled for fast arithmetic.
//!
//! With the feature `std`, `x86_64` is asked by its register: additions of subnormal numbers, which would tell as well, take some
//! Intel processors 50 ns.
#![cfg_attr(feature = "std", allow(unsafe_code))]

/// Whether it rounds to nearest.
pub(crate) fn rounds_to_nearest() -> bool {
    imp::rounds_to_nearest()
}

/// Whether it rounds to nearest and keeps subnormals: one addition is then an exact sum.
pub(crate) fn adds_as_ieee() -> bool {
    imp::adds_as_ieee()
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod imp {
    use core::arch::asm;

    /// Bits of MXCSR: how to round, zero for to nearest; and whether subnormal results and operands become zero.
    const ROUNDING: u32 = 0x6000;
    const FLUSHES: u32 = 0x8040;

    fn control() -> u32 {
        let mut control = 0_u32;
        // SAFETY: the instruction writes four bytes, and they are this number's.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack, preserves_flags))
        };
        control
    }

    pub(super) fn rounds_to_nearest() -> bool {
        control() & ROUNDING == 0
    }

    pub(super) fn adds_as_ieee() -> bool {
        control() & (ROUNDING | FLUSHES) == 0
    }
}

#[cfg(any(test, not(all(feature = "std", target_arch = "x86_64"))))]
mod by_additions {
    use core::hint::black_box;

    pub(super) fn rounds_to_nearest() -> bool {
        // Below and above the middle between one and the next number. No other mode rounds one down and the other up.
        let [below, above] = black_box([0.25 * f64::EPSILON, 0.75 * f64::EPSILON]);
        1.0 + below == 1.0 && 1.0 + above == 1.0 + f64::EPSILON
    }

    pub(super) fn adds_as_ieee() -> bool {
        let [smallest_normal, smallest] = black_box([f64::MIN_POSITIVE, f64::from_bits(1)]);
        rounds_to_nearest() && smallest_normal * 0.5 > 0.0 && smallest * 2.0 > 0.0
    }
}

#[cfg(not(all(feature = "std", target_arch = "x86_64")))]
use by_additions as imp;

#[cfg(all(test, feature = "std", target_arch = "x86_64"))]
mod tests {
    use core::arch::asm;

    use super::{by_additions, imp};

    #[test]
    fn the_register_says_what_additions_show() {
        let default = 0x1f80_u32;
        for bits in [0, 0x2000, 0x4000, 0x6000, 0x8000, 0x40, 0x8040, 0xe040] {
            let mode = default | bits;
            // SAFETY: the value is a valid MXCSR, and the default one is back before other code runs.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const mode) };
            let found = (imp::rounds_to_nearest(), imp::adds_as_ieee());
            let shown = (by_additions::rounds_to_nearest(), by_additions::adds_as_ieee());
            // SAFETY: as above.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const default) };
            assert_eq!(found, shown, "mode {mode:#x}");
        }
    }
}
