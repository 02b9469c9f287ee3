//! The instruction sets that have kernels, and which of them this processor has.

use std::sync::LazyLock;

/// An instruction set that kernels are compiled for.
///
/// All give the same results; they differ in speed only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// The base instruction set of the compiled target (SSE2 on `x86_64`, NEON on `aarch64`).
    Portable,
    /// `x86_64` with AVX2 and F16C.
    Avx2,
    /// `x86_64` with AVX-512 F, BW, DQ and VL, and all of [`Isa::Avx2`].
    Avx512,
}

impl Isa {
    /// Every instruction set, the slowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The fastest one this processor has, determined once per process.
    #[must_use]
    pub fn best() -> Self {
        static BEST: LazyLock<Isa> = LazyLock::new(|| {
            Isa::ALL.into_iter().rfind(|isa| isa.is_available()).unwrap_or(Isa::Portable)
        });
        *BEST
    }

    /// Whether this processor, and its operating system, can run it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Name used in options and tables: `portable`, `avx2`, `avx512`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}
