//! How elements lie in bytes: loads and stores that need no alignment.

/// A value that vectors are made of, and its little-endian layout.
pub(crate) trait Element: Copy {
    /// The bytes of one element.
    type Bytes: Copy;

    /// Reads one element.
    fn load(bytes: Self::Bytes) -> Self;

    /// Writes one element; padding becomes zero.
    fn store(self) -> Self::Bytes;

    /// Cuts `bytes` into elements; what does not fill an element is left out.
    fn elements(bytes: &[u8]) -> &[Self::Bytes];

    /// Cuts `bytes` into elements that can be replaced.
    fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
}

/// A value and its index, as MPI's minloc and maxloc take them (MPI 4.1 §6.9.4).
#[derive(Clone, Copy)]
pub(crate) struct Pair<V> {
    pub(crate) value: V,
    pub(crate) index: i32,
}

/// Cutting is the same for every element; only the number of bytes differs.
macro_rules! cut_by_size {
    () => {
        #[inline(always)]
        fn elements(bytes: &[u8]) -> &[Self::Bytes] {
            bytes.as_chunks().0
        }

        #[inline(always)]
        fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
            bytes.as_chunks_mut().0
        }
    };
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Element for $number {
            type Bytes = [u8; size_of::<$number>()];

            #[inline(always)]
            fn load(bytes: Self::Bytes) -> Self {
                <$number>::from_le_bytes(bytes)
            }

            #[inline(always)]
            fn store(self) -> Self::Bytes {
                self.to_le_bytes()
            }

            cut_by_size!();
        }
    )*};
}

numbers!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);

/// A pair is loaded and stored as one or two 64-bit words, which keeps its loop vectorisable.
macro_rules! narrow_pairs {
    ($($value:ty, $bits:ty;)*) => {$(
        impl Element for Pair<$value> {
            type Bytes = [u8; 8];

            #[inline(always)]
            fn load(bytes: Self::Bytes) -> Self {
                let word = u64::from_le_bytes(bytes);
                let value = <$value>::from_le_bytes((word as $bits).to_le_bytes());
                Self { value, index: (word >> 32) as i32 }
            }

            #[inline(always)]
            fn store(self) -> Self::Bytes {
                let value = <$bits>::from_le_bytes(self.value.to_le_bytes());
                (u64::from(value) | u64::from(self.index as u32) << 32).to_le_bytes()
            }

            cut_by_size!();
        }
    )*};
}

macro_rules! wide_pairs {
    ($($value:ty)*) => {$(
        impl Element for Pair<$value> {
            type Bytes = [u8; 16];

            #[inline(always)]
            fn load(bytes: Self::Bytes) -> Self {
                let word = u128::from_le_bytes(bytes);
                let value = <$value>::from_le_bytes((word as u64).to_le_bytes());
                Self { value, index: (word >> 64) as i32 }
            }

            #[inline(always)]
            fn store(self) -> Self::Bytes {
                let value = u64::from_le_bytes(self.value.to_le_bytes());
                (u128::from(value) | u128::from(self.index as u32) << 64).to_le_bytes()
            }

            cut_by_size!();
        }
    )*};
}

narrow_pairs! { i16, u16; i32, u32; f32, u32; }
wide_pairs! { i64 f64 }
