//! Several binary32 values at once, and the conversions between them and 16-bit floats.
//!
//! The compiler vectorises every other element by itself. It does not know the conversion instructions
//! for binary16, so each instruction set implements these few operations.

/// A register's worth of binary32 values.
pub(crate) trait Lanes: Copy {
    /// How many values.
    const COUNT: usize;

    /// Reads `COUNT` binary32 values.
    ///
    /// # Safety
    /// `4 * COUNT` bytes at `at` can be read. (Here and below, no alignment is needed, and the
    /// processor has the instructions of the implementation.)
    unsafe fn load(at: *const u8) -> Self;

    /// Writes `COUNT` binary32 values.
    ///
    /// # Safety
    /// `4 * COUNT` bytes at `at` can be written.
    unsafe fn store(self, at: *mut u8);

    /// Reads `COUNT` binary16 values; exact, NaNs become quiet.
    ///
    /// # Safety
    /// `2 * COUNT` bytes at `at` can be read.
    unsafe fn load_f16(at: *const u8) -> Self;

    /// Writes `COUNT` binary16 values, rounded to nearest even; NaNs become quiet
    /// and keep their upper payload bits.
    ///
    /// # Safety
    /// `2 * COUNT` bytes at `at` can be written.
    unsafe fn store_f16(self, at: *mut u8);

    /// Reads `COUNT` bfloat16 values; exact.
    ///
    /// # Safety
    /// `2 * COUNT` bytes at `at` can be read.
    unsafe fn load_bf16(at: *const u8) -> Self;

    /// Writes `COUNT` bfloat16 values, rounded to nearest even; NaNs become quiet
    /// and keep their upper payload bits.
    ///
    /// # Safety
    /// `2 * COUNT` bytes at `at` can be written.
    unsafe fn store_bf16(self, at: *mut u8);

    /// `self + right`.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn add(self, right: Self) -> Self;

    /// `self * right`.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn multiply(self, right: Self) -> Self;

    /// `if right < self or right is a NaN { right } else { self }`.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn min(self, right: Self) -> Self;

    /// `if right > self or right is a NaN { right } else { self }`.
    ///
    /// # Safety
    /// The processor has the instructions of the implementation.
    unsafe fn max(self, right: Self) -> Self;
}

/// A 16-bit float format.
pub(crate) trait Half {
    /// Reads `V::COUNT` values as binary32.
    ///
    /// # Safety
    /// `2 * V::COUNT` bytes at `at` can be read; the processor has the instructions of `V`.
    unsafe fn load<V: Lanes>(at: *const u8) -> V;

    /// Rounds and writes `V::COUNT` values.
    ///
    /// # Safety
    /// `2 * V::COUNT` bytes at `at` can be written; the processor has the instructions of `V`.
    unsafe fn store<V: Lanes>(values: V, at: *mut u8);
}

/// IEEE 754 binary16.
pub(crate) struct F16;

/// bfloat16.
pub(crate) struct Bf16;

impl Half for F16 {
    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8) -> V {
        // SAFETY: the contract of `Half::load` is that of the function it calls.
        unsafe { V::load_f16(at) }
    }

    #[inline(always)]
    unsafe fn store<V: Lanes>(values: V, at: *mut u8) {
        // SAFETY: the contract of `Half::store` is that of the function it calls.
        unsafe { values.store_f16(at) }
    }
}

impl Half for Bf16 {
    #[inline(always)]
    unsafe fn load<V: Lanes>(at: *const u8) -> V {
        // SAFETY: the contract of `Half::load` is that of the function it calls.
        unsafe { V::load_bf16(at) }
    }

    #[inline(always)]
    unsafe fn store<V: Lanes>(values: V, at: *mut u8) {
        // SAFETY: the contract of `Half::store` is that of the function it calls.
        unsafe { values.store_bf16(at) }
    }
}
