//! The instruction sets that the kernels are compiled for. The only unsafe code of the crate: calls of functions that need
//! an instruction set, after a look whether the processor has it.
#![allow(unsafe_code)]

use super::blocks::{self, BlockSums};

/// An instruction set that the kernels are compiled for. All give the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// The base instruction set of the compiled target.
    Portable,
    /// `x86_64` with AVX2 and FMA.
    Avx2,
    /// `x86_64` with AVX-512 F, DQ and VL, and all of [`Isa::Avx2`].
    Avx512,
}

/// Splits the products of two blocks in two blocks. Whether they are exact.
type Multiply = fn(&[f64], &[f64], &mut [f64], &mut [f64]) -> bool;

/// The functions of one instruction set.
pub(super) struct Kernel {
    pub(super) sum: fn(&[f64], &mut BlockSums) -> bool,
    pub(super) multiply_doubles: Multiply,
}

static PORTABLE: Kernel = Kernel {
    sum: |values, sums| blocks::sum(values, sums),
    multiply_doubles: |left, right, high, low| {
        blocks::multiply::<{ cfg!(target_arch = "aarch64") }>(left, right, high, low)
    },
};

impl Isa {
    /// Every instruction set, the slowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The fastest one that this processor has.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().rfind(|isa| isa.is_available()).unwrap_or(Self::Portable)
    }

    /// Whether this processor, and its operating system, can run it.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        use std::is_x86_feature_detected as has;
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => has!("avx2") && has!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available() && has!("avx512f") && has!("avx512dq") && has!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }
}

impl Kernel {
    /// The kernels of an instruction set, of the base one if the processor lacks it.
    pub(super) fn of(isa: Isa) -> &'static Self {
        if !isa.is_available() {
            return &PORTABLE;
        }
        match isa {
            Isa::Portable => &PORTABLE,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &avx2::KERNEL,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => &avx512::KERNEL,
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => &PORTABLE,
        }
    }
}

macro_rules! compile {
    ($name:ident, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        mod $name {
            use super::{BlockSums, Kernel, blocks};

            // Reached through `Kernel::of` only, which has looked at the processor.
            pub(super) static KERNEL: Kernel = Kernel {
                sum: |values, sums| {
                    // SAFETY: the processor has the features, see above.
                    unsafe { sum(values, sums) }
                },
                multiply_doubles: |left, right, high, low| {
                    // SAFETY: the processor has the features, see above.
                    unsafe { multiply(left, right, high, low) }
                },
            };

            #[target_feature(enable = $features)]
            fn sum(values: &[f64], sums: &mut BlockSums) -> bool {
                blocks::sum(values, sums)
            }

            #[target_feature(enable = $features)]
            fn multiply(left: &[f64], right: &[f64], high: &mut [f64], low: &mut [f64]) -> bool {
                blocks::multiply::<true>(left, right, high, low)
            }
        }
    };
}

compile!(avx2, "avx2,fma");
compile!(avx512, "avx2,fma,avx512f,avx512dq,avx512vl");
