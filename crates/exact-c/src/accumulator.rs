//! The functions of accumulators, as the header declares them.

use std::slice;

use tributary_exact::{AddError, AnySum};

/// What functions return, as in the header.
#[repr(i32)]
#[derive(Clone, Copy)]
pub(crate) enum Status {
    Ok = 0,
    Format = 1,
    Overflow = 2,
    Encoding = 3,
}

impl From<Result<(), AddError>> for Status {
    fn from(result: Result<(), AddError>) -> Self {
        match result {
            Ok(()) => Self::Ok,
            Err(AddError::Overflow(_)) => Self::Overflow,
            Err(AddError::Format) => Self::Format,
            Err(AddError::Lengths(_)) => unreachable!("C gives one length for both arrays"),
        }
    }
}

/// An empty sum of a format that C names.
pub(crate) fn sum_of(format: i32) -> Option<AnySum> {
    u8::try_from(format).ok().and_then(AnySum::of_format)
}

/// Elements of a C array, which may be a null pointer if there are none.
///
/// # Safety
/// There are `count` elements at `pointer`, and nobody writes to them meanwhile.
pub(crate) unsafe fn elements<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(pointer, count) }
}

/// # Safety
/// As [`elements`], and nobody reads them either.
pub(crate) unsafe fn elements_mut<'a, T>(pointer: *mut T, count: usize) -> &'a mut [T] {
    if count == 0 {
        return &mut [];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts_mut(pointer, count) }
}

/// Makes an empty sum; null if there is no such format.
#[unsafe(no_mangle)]
extern "C" fn tributary_exact_new(format: i32) -> Option<Box<AnySum>> {
    sum_of(format).map(Box::new)
}

/// Frees a sum, or nothing.
#[unsafe(no_mangle)]
extern "C" fn tributary_exact_free(sum: Option<Box<AnySum>>) {
    drop(sum);
}

/// Makes the sum that of nothing.
#[unsafe(no_mangle)]
extern "C" fn tributary_exact_clear(sum: &mut AnySum) {
    sum.clear();
}

/// # Safety
/// There are `count` values.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_add_floats(
    sum: &mut AnySum,
    values: *const f32,
    count: usize,
) -> Status {
    // SAFETY: as the caller promises.
    let values = unsafe { elements(values, count) };
    sum.add_floats(values).into()
}

/// # Safety
/// There are `count` values.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_add_doubles(
    sum: &mut AnySum,
    values: *const f64,
    count: usize,
) -> Status {
    // SAFETY: as the caller promises.
    let values = unsafe { elements(values, count) };
    sum.add_doubles(values).into()
}

/// # Safety
/// Both arrays have `count` values.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_add_float_products(
    sum: &mut AnySum,
    left: *const f32,
    right: *const f32,
    count: usize,
) -> Status {
    // SAFETY: as the caller promises.
    let (left, right) = unsafe { (elements(left, count), elements(right, count)) };
    sum.add_float_products(left, right).into()
}

/// # Safety
/// Both arrays have `count` values.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_add_double_products(
    sum: &mut AnySum,
    left: *const f64,
    right: *const f64,
    count: usize,
) -> Status {
    // SAFETY: as the caller promises.
    let (left, right) = unsafe { (elements(left, count), elements(right, count)) };
    sum.add_double_products(left, right).into()
}

/// Adds another sum, which may not be the same object.
#[unsafe(no_mangle)]
extern "C" fn tributary_exact_merge(sum: &mut AnySum, other: &AnySum) -> Status {
    sum.merge(other).into()
}

/// The sum, rounded.
#[unsafe(no_mangle)]
extern "C" fn tributary_exact_value(sum: &AnySum) -> f64 {
    sum.value()
}

/// How many bytes the encoding has; it is written if there is room for so many.
///
/// # Safety
/// There is room for `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_encode(sum: &AnySum, bytes: *mut u8, room: usize) -> usize {
    let mut encoding = [0; AnySum::ENCODED_BYTES_MAX];
    let len_bytes = sum.encode(&mut encoding).expect("there is room for the longest encoding");
    if len_bytes <= room {
        // SAFETY: as the caller promises.
        let bytes = unsafe { elements_mut(bytes, len_bytes) };
        bytes.copy_from_slice(&encoding[..len_bytes]);
    }
    len_bytes
}

/// # Safety
/// There are `count` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_decode(
    sum: &mut AnySum,
    bytes: *const u8,
    count: usize,
) -> Status {
    // SAFETY: as the caller promises.
    let bytes = unsafe { elements(bytes, count) };
    sum.replace(bytes).map_or(Status::Encoding, |()| Status::Ok)
}

/// The sum's format.
#[unsafe(no_mangle)]
extern "C" fn tributary_exact_format(sum: &AnySum) -> i32 {
    i32::from(sum.format())
}

/// How many integers a sum of this format has; none if there is no such format.
#[unsafe(no_mangle)]
extern "C" fn tributary_exact_integers(format: i32) -> usize {
    sum_of(format).map_or(0, |sum| sum.integers())
}

/// # Safety
/// There is room for the integers of the sum's format.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_write_integers(sum: &AnySum, integers: *mut i64) {
    // SAFETY: as the caller promises.
    sum.write_integers(unsafe { elements_mut(integers, sum.integers()) });
}

/// # Safety
/// There are the integers of the sum's format.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_read_integers(
    sum: &mut AnySum,
    integers: *const i64,
) -> Status {
    // SAFETY: as the caller promises.
    let integers = unsafe { elements(integers, sum.integers()) };
    sum.read_integers(integers).map_or(Status::Overflow, |()| Status::Ok)
}
