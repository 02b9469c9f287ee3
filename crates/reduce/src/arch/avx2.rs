//! AVX2 with F16C: eight binary32 values per register.

use core::arch::x86_64::*;

use super::{Arch, OneFunction, ThreeFunction, TwoFunction, compile};
use crate::body::{One, Three, Two};
use crate::lanes::Lanes;

/// Compiles for AVX2 and F16C.
pub(crate) struct Avx2;

impl Arch for Avx2 {
    type Wide = __m256;

    fn one<B: One>() -> OneFunction {
        one::<B>
    }

    fn two<B: Two>() -> TwoFunction {
        two::<B>
    }

    fn three<B: Three>() -> ThreeFunction {
        three::<B>
    }
}

compile!(#[target_feature(enable = "avx2,f16c")]);

// SAFETY, for all blocks below: by the contracts of [`Lanes`], the bytes at `at` are accessible and the
// processor has AVX2 and F16C.
impl Lanes for __m256 {
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(at.cast(), self) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u8) {
        // SAFETY: see above.
        unsafe {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self);
            _mm_storeu_si128(at.cast(), halves);
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> Self {
        // SAFETY: see above.
        unsafe {
            let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u8) {
        // SAFETY: see above.
        unsafe {
            let bits = _mm256_castps_si256(self);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_add_epi32(bits, bias);
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(1 << 22));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self, self));
            let upper = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, is_nan));
            let lower_half = _mm256_castsi256_si128(upper);
            let upper_half = _mm256_extracti128_si256::<1>(upper);
            _mm_storeu_si128(at.cast(), _mm_packus_epi32(lower_half, upper_half));
        }
    }

    #[inline(always)]
    unsafe fn add(self, right: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(self, right) }
    }

    #[inline(always)]
    unsafe fn multiply(self, right: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(self, right) }
    }

    #[inline(always)]
    unsafe fn min(self, right: Self) -> Self {
        // The instruction gives its second operand when neither is smaller, so if that is a NaN.
        // SAFETY: see above.
        unsafe { right_if_nan(_mm256_min_ps(right, self), right) }
    }

    #[inline(always)]
    unsafe fn max(self, right: Self) -> Self {
        // SAFETY: see above.
        unsafe { right_if_nan(_mm256_max_ps(right, self), right) }
    }
}

/// `otherwise`, and `right` in the lanes where it is a NaN.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn right_if_nan(otherwise: __m256, right: __m256) -> __m256 {
    // SAFETY: the processor has AVX2, by this function's contract.
    unsafe {
        let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(right, right);
        _mm256_blendv_ps(otherwise, right, is_nan)
    }
}
