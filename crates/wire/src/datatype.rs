//! What one element of a vector is.

/// Element type of a vector, as the frame header names it.
///
/// Elements travel in host order of the little-endian machines this runs on. The pair types have
/// the memory layout of the C structs that MPI 4.1 §6.9.4 pairs with `MPI_MINLOC`/`MPI_MAXLOC`,
/// trailing padding included, so that a user's buffer is a payload as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "control", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "control", serde(rename_all = "kebab-case"))]
#[repr(u8)]
pub enum Datatype {
    /// Signed 8-bit integer.
    I8 = 1,
    /// Signed 16-bit integer.
    I16 = 2,
    /// Signed 32-bit integer.
    I32 = 3,
    /// Signed 64-bit integer.
    I64 = 4,
    /// Unsigned 8-bit integer; also the byte of a broadcast.
    U8 = 5,
    /// Unsigned 16-bit integer.
    U16 = 6,
    /// Unsigned 32-bit integer.
    U32 = 7,
    /// Unsigned 64-bit integer.
    U64 = 8,
    /// IEEE 754 binary16.
    F16 = 9,
    /// bfloat16: the upper half of a binary32.
    Bf16 = 10,
    /// IEEE 754 binary32.
    F32 = 11,
    /// IEEE 754 binary64.
    F64 = 12,
    /// `struct { int16_t value; int32_t index; }`: 8 bytes (`MPI_SHORT_INT`).
    I16Index = 13,
    /// `struct { int32_t value; int32_t index; }`: 8 bytes (`MPI_2INT`).
    I32Index = 14,
    /// `struct { int64_t value; int32_t index; }`: 16 bytes (`MPI_LONG_INT`).
    I64Index = 15,
    /// `struct { float value; int32_t index; }`: 8 bytes (`MPI_FLOAT_INT`).
    F32Index = 16,
    /// `struct { double value; int32_t index; }`: 16 bytes (`MPI_DOUBLE_INT`).
    F64Index = 17,
    /// `float _Complex`: two binary32, the real part first, 8 bytes (`MPI_C_FLOAT_COMPLEX`).
    F32Complex = 18,
    /// `double _Complex`: two binary64, the real part first, 16 bytes (`MPI_C_DOUBLE_COMPLEX`).
    F64Complex = 19,
    /// `struct { float value; float index; }`: 8 bytes (Fortran's `MPI_2REAL`).
    F32FloatIndex = 20,
    /// `struct { double value; double index; }`: 16 bytes (Fortran's `MPI_2DOUBLE_PRECISION`).
    F64FloatIndex = 21,
}

/// A datatype code no version of this protocol defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("datatype code {0} is not defined")]
pub struct UnknownDatatype(pub u8);

impl Datatype {
    /// Every datatype, in code order.
    pub const ALL: [Self; 21] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::I16Index,
        Self::I32Index,
        Self::I64Index,
        Self::F32Index,
        Self::F64Index,
        Self::F32Complex,
        Self::F64Complex,
        Self::F32FloatIndex,
        Self::F64FloatIndex,
    ];

    /// Size of the largest element.
    pub const SIZE_BYTES_MAX: usize = 16;

    /// Size of one element, padding included.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::I16Index | Self::I32Index | Self::F32Index => 8,
            Self::I64Index | Self::F64Index => 16,
            Self::F32Complex | Self::F32FloatIndex => 8,
            Self::F64Complex | Self::F64FloatIndex => 16,
        }
    }

    /// The code in the frame header.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The datatype a frame header names.
    ///
    /// # Errors
    /// If no datatype has that code.
    pub const fn from_code(code: u8) -> Result<Self, UnknownDatatype> {
        if code == 0 || code as usize > Self::ALL.len() {
            return Err(UnknownDatatype(code));
        }
        Ok(Self::ALL[code as usize - 1])
    }

    /// Name used in options and tables: `f32`, `bf16`, `i64-index`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I16Index => "i16-index",
            Self::I32Index => "i32-index",
            Self::I64Index => "i64-index",
            Self::F32Index => "f32-index",
            Self::F64Index => "f64-index",
            Self::F32Complex => "f32-complex",
            Self::F64Complex => "f64-complex",
            Self::F32FloatIndex => "f32-float-index",
            Self::F64FloatIndex => "f64-float-index",
        }
    }

    /// True for integers, signed or not.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            Self::I8
                | Self::I16
                | Self::I32
                | Self::I64
                | Self::U8
                | Self::U16
                | Self::U32
                | Self::U64
        )
    }

    /// True for the value-index pairs of minloc and maxloc.
    #[must_use]
    pub const fn is_pair(self) -> bool {
        matches!(
            self,
            Self::I16Index
                | Self::I32Index
                | Self::I64Index
                | Self::F32Index
                | Self::F64Index
                | Self::F32FloatIndex
                | Self::F64FloatIndex
        )
    }

    /// True for complex numbers, which have a sum and a product but no order.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::F32Complex | Self::F64Complex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_others_are_refused() {
        for datatype in Datatype::ALL {
            assert_eq!(Datatype::from_code(datatype.code()), Ok(datatype));
            assert!(datatype.size_bytes() <= Datatype::SIZE_BYTES_MAX);
        }
        for code in (0..=255).filter(|code| !(1..=21).contains(code)) {
            assert_eq!(Datatype::from_code(code), Err(UnknownDatatype(code)));
        }
    }
}
