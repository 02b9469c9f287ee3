//! The byte layout of elements: loads and stores that need no alignment.

/// An element of a vector, and its little-endian layout.
pub(crate) trait Element: Copy {
    /// The bytes of one element.
    type Bytes: Copy;

    /// Reads one element.
    fn load(bytes: Self::Bytes) -> Self;

    /// Writes one element; padding becomes zero.
    fn store(self) -> Self::Bytes;

    /// Cuts `bytes` into elements; an incomplete last element is left out.
    fn elements(bytes: &[u8]) -> &[Self::Bytes];

    /// Cuts `bytes` into elements that can be replaced.
    fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
}

/// A value and its index, as MPI's minloc and maxloc take them (MPI 4.1 §6.9.4). Fortran's pairs have
/// indices that are floats.
#[derive(Clone, Copy)]
pub(crate) struct Pair<V, I = i32> {
    pub(crate) value: V,
    pub(crate) index: I,
}

/// A complex number.
#[derive(Clone, Copy)]
pub(crate) struct Complex<F> {
    pub(crate) real: F,
    pub(crate) imaginary: F,
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

            #[inline(always)]
            fn elements(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }

            #[inline(always)]
            fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }
        }
    )*};
}

numbers!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);

/// Pairs are loaded and stored as two slots, the value and the index, not as one word: the compiler then
/// sees two interleaved vectors, and vectorises.
macro_rules! pairs {
    ($($value:ty: $value_bits:ty, $slot:ty;)*) => {$(
        impl Element for Pair<$value> {
            type Bytes = [[u8; size_of::<$slot>()]; 2];

            #[inline(always)]
            fn load([value, index]: Self::Bytes) -> Self {
                let value = <$slot>::from_le_bytes(value) as $value_bits;
                let index = <$slot>::from_le_bytes(index);
                Self { value: <$value>::from_ne_bytes(value.to_ne_bytes()), index: index as i32 }
            }

            #[inline(always)]
            fn store(self) -> Self::Bytes {
                let value = <$value_bits>::from_ne_bytes(self.value.to_ne_bytes());
                let index = self.index as u32;
                [<$slot>::from(value).to_le_bytes(), <$slot>::from(index).to_le_bytes()]
            }

            #[inline(always)]
            fn elements(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0.as_chunks().0
            }

            #[inline(always)]
            fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0.as_chunks_mut().0
            }
        }
    )*};
}

pairs! { i16: u16, u32; i32: u32, u32; i64: u64, u64; f32: u32, u32; f64: u64, u64; }

/// Two floats of one width, without padding: the fields of a type in their order.
macro_rules! twos {
    ($($type:ty: $first:ident, $second:ident, $float:ty;)*) => {$(
        impl Element for $type {
            type Bytes = [[u8; size_of::<$float>()]; 2];

            #[inline(always)]
            fn load([first, second]: Self::Bytes) -> Self {
                let ($first, $second) = (<$float>::from_le_bytes(first), <$float>::from_le_bytes(second));
                Self { $first, $second }
            }

            #[inline(always)]
            fn store(self) -> Self::Bytes {
                [self.$first.to_le_bytes(), self.$second.to_le_bytes()]
            }

            #[inline(always)]
            fn elements(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0.as_chunks().0
            }

            #[inline(always)]
            fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0.as_chunks_mut().0
            }
        }
    )*};
}

twos! {
    Pair<f32, f32>: value, index, f32;
    Pair<f64, f64>: value, index, f64;
    Complex<f32>: real, imaginary, f32;
    Complex<f64>: real, imaginary, f64;
}
