//! Many sums of one array at once, as integers that an allreduce adds.

use tributary_exact::AnySum;

use crate::accumulator::{Status, elements, elements_mut, sum_of};

/// Arrays of `rows` rows of `sums` values each. The right one is there for products alone.
struct Arrays {
    left: *const core::ffi::c_void,
    right: *const core::ffi::c_void,
    rows: usize,
    sums: usize,
}

/// Values of one sum; copied to `column` unless they lie one behind the other.
fn column_of<'a, T: Copy>(
    values: &'a [T],
    sum: usize,
    sums: usize,
    column: &'a mut Vec<T>,
) -> &'a [T] {
    if sums == 1 {
        return values;
    }
    column.clear();
    column.extend(values.chunks_exact(sums).map(|row| row[sum]));
    column
}

impl Arrays {
    /// # Safety
    /// The arrays have as many values of the type.
    unsafe fn each<T: Copy>(
        &self,
        add: impl Fn(&mut AnySum, &[T]),
        mut deposit: impl FnMut(usize, &dyn Fn(&mut AnySum)),
    ) {
        // SAFETY: as the caller promises.
        let values = unsafe { elements(self.left.cast::<T>(), self.rows * self.sums) };
        let mut column = Vec::new();
        for number in 0..self.sums {
            let values = column_of(values, number, self.sums, &mut column);
            deposit(number, &|sum| add(sum, values));
        }
    }

    /// # Safety
    /// The arrays have as many values of the type.
    unsafe fn each_pair<T: Copy>(
        &self,
        add: impl Fn(&mut AnySum, &[T], &[T]),
        mut deposit: impl FnMut(usize, &dyn Fn(&mut AnySum)),
    ) {
        let count = self.rows * self.sums;
        // SAFETY: as the caller promises.
        let left = unsafe { elements(self.left.cast::<T>(), count) };
        // SAFETY: as the caller promises.
        let right = unsafe { elements(self.right.cast::<T>(), count) };
        let (mut column, mut other) = (Vec::new(), Vec::new());
        for number in 0..self.sums {
            let left = column_of(left, number, self.sums, &mut column);
            let right = column_of(right, number, self.sums, &mut other);
            deposit(number, &|sum| add(sum, left, right));
        }
    }
}

const FITS: &str = "the sum is of the format of the values, and the arrays are of one length";

/// Writes the integers of `sums` sums, one behind the other.
///
/// # Safety
/// `left` and, for products, `right` have `rows` times `sums` values of the format's type, and there is room for the
/// integers.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_arrays_to_integers(
    format: i32,
    left: *const core::ffi::c_void,
    right: *const core::ffi::c_void,
    rows: usize,
    sums: usize,
    integers: *mut i64,
) -> Status {
    let Some(empty) = sum_of(format) else { return Status::Format };
    let arrays = Arrays { left, right, rows, sums };
    let per_sum = empty.integers();
    // SAFETY: as the caller promises.
    let integers = unsafe { elements_mut(integers, sums * per_sum) };
    let deposit = |number: usize, add: &dyn Fn(&mut AnySum)| {
        let mut sum = empty;
        add(&mut sum);
        sum.write_integers(&mut integers[number * per_sum..][..per_sum]);
    };
    // SAFETY: as the caller promises.
    unsafe {
        match empty {
            AnySum::Floats(_) => {
                arrays.each(|sum, values| sum.add_floats(values).expect(FITS), deposit);
            }
            AnySum::Doubles(_) => {
                arrays.each(|sum, values| sum.add_doubles(values).expect(FITS), deposit);
            }
            AnySum::FloatProducts(_) => arrays.each_pair(
                |sum, left, right| sum.add_float_products(left, right).expect(FITS),
                deposit,
            ),
            AnySum::DoubleProducts(_) => arrays.each_pair(
                |sum, left, right| sum.add_double_products(left, right).expect(FITS),
                deposit,
            ),
        }
    }
    Status::Ok
}

/// Rounds sums that integers are, each to a double, which holds every float.
///
/// # Safety
/// There are the integers of `sums` sums, and room for as many values.
#[unsafe(no_mangle)]
unsafe extern "C" fn tributary_exact_values_of_integers(
    format: i32,
    integers: *const i64,
    sums: usize,
    values: *mut f64,
) -> Status {
    let Some(mut sum) = sum_of(format) else { return Status::Format };
    let per_sum = sum.integers();
    // SAFETY: as the caller promises.
    let integers = unsafe { elements(integers, sums * per_sum) };
    // SAFETY: as the caller promises.
    let values = unsafe { elements_mut(values, sums) };
    for (value, integers) in values.iter_mut().zip(integers.chunks_exact(per_sum)) {
        if sum.read_integers(integers).is_err() {
            return Status::Overflow;
        }
        *value = sum.value();
    }
    Status::Ok
}
