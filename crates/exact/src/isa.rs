//! The instruction sets that loops over many values are compiled for. With `mode` the only unsafe code of the crate: calls of functions
//! that need an instruction set, after a look whether the processor has it. Without the feature `std` nobody can look.
#![cfg_attr(feature = "std", allow(unsafe_code))]

/// An instruction set that loops are compiled for. All give the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// The base instruction set of the compiled target.
    Portable,
    /// `x86_64` with AVX2 and FMA.
    Avx2,
    /// `x86_64` with AVX-512 F, DQ and VL, and all of [`Isa::Avx2`].
    Avx512,
}

/// Loops over fewer values take the base instruction set: to find out what the processor has takes as long as they do.
pub(crate) const VECTOR_VALUES_MIN: usize = 16;

/// A loop that is compiled for every instruction set. Its `run` is to be `#[inline(always)]`, and so is all that it calls.
pub(crate) trait Loop {
    type Output;

    /// `FUSED` says that the processor multiplies and adds in one operation.
    fn run<const FUSED: bool>(self) -> Self::Output;
}

impl Isa {
    /// Every instruction set, the slowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The fastest one that this processor has.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().rfind(|isa| isa.is_available()).unwrap_or(Self::Portable)
    }

    /// That for a loop over so many values.
    #[inline]
    pub(crate) fn for_values(count: usize) -> Self {
        if count < VECTOR_VALUES_MIN { Self::Portable } else { Self::best() }
    }

    /// Whether this processor, and its operating system, can run it.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        use std::is_x86_feature_detected as has;
        match self {
            Self::Portable => true,
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            Self::Avx2 => has!("avx2") && has!("fma"),
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            Self::Avx512 => {
                Self::Avx2.is_available() && has!("avx512f") && has!("avx512dq") && has!("avx512vl")
            }
            #[cfg(not(all(feature = "std", target_arch = "x86_64")))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Runs a loop as it is compiled for this instruction set, or for the base one if the processor lacks it.
    #[inline]
    pub(crate) fn run<L: Loop>(self, body: L) -> L::Output {
        match self {
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            // SAFETY: the processor has the features.
            Self::Avx2 if self.is_available() => unsafe { run_with_avx2(body) },
            #[cfg(all(feature = "std", target_arch = "x86_64"))]
            // SAFETY: the processor has the features.
            Self::Avx512 if self.is_available() => unsafe { run_with_avx512(body) },
            _ => body.run::<{ cfg!(target_arch = "aarch64") }>(),
        }
    }
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[target_feature(enable = "avx2,fma")]
fn run_with_avx2<L: Loop>(body: L) -> L::Output {
    body.run::<true>()
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl")]
fn run_with_avx512<L: Loop>(body: L) -> L::Output {
    body.run::<true>()
}
