//! AVX-512 F, BW, DQ and VL: sixteen binary32 values per register.
//!
//! AVX512_BF16 is not used: its conversion flushes subnormals, so its results would differ from
//! those of the other instruction sets.

use core::arch::x86_64::*;

use super::{Arch, OneFunction, ThreeFunction, TwoFunction, compile};
use crate::body::{One, Three, Two};
use crate::lanes::Lanes;

/// Compiles for AVX-512 F, BW, DQ and VL.
pub(crate) struct Avx512;

impl Arch for Avx512 {
    type Wide = __m512;

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

compile!(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]);

// SAFETY, for all blocks below: by the contracts of [`Lanes`], the bytes at `at` are accessible and the
// processor has AVX-512.
impl Lanes for __m512 {
    const COUNT: usize = 16;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(at.cast(), self) }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u8) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u8) {
        // SAFETY: see above.
        unsafe {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self);
            _mm256_storeu_si256(at.cast(), halves);
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(at: *const u8) -> Self {
        // SAFETY: see above.
        unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u8) {
        // SAFETY: see above.
        unsafe {
            let bits = _mm512_castps_si512(self);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_add_epi32(bits, bias);
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self, self);
            let quiet = _mm512_set1_epi32(1 << 22);
            let result = _mm512_mask_or_epi32(rounded, is_nan, bits, quiet);
            let halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(result));
            _mm256_storeu_si256(at.cast(), halves);
        }
    }

    #[inline(always)]
    unsafe fn add(self, right: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(self, right) }
    }

    #[inline(always)]
    unsafe fn multiply(self, right: Self) -> Self {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(self, right) }
    }

    #[inline(always)]
    unsafe fn min(self, right: Self) -> Self {
        // The instruction gives its second operand when neither is smaller, so if that is a NaN.
        // SAFETY: see above.
        unsafe { right_if_nan(_mm512_min_ps(right, self), right) }
    }

    #[inline(always)]
    unsafe fn max(self, right: Self) -> Self {
        // SAFETY: see above.
        unsafe { right_if_nan(_mm512_max_ps(right, self), right) }
    }
}

/// `otherwise`, and `right` in the lanes where it is a NaN.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn right_if_nan(otherwise: __m512, right: __m512) -> __m512 {
    // SAFETY: the processor has AVX-512F, by this function's contract.
    unsafe {
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(right, right);
        _mm512_mask_mov_ps(otherwise, is_nan, right)
    }
}
