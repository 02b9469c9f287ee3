//! Which elements of an array belong to one sum.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// An array in C order as `outer` blocks of `count` rows of `inner` elements. Elements at one place of all rows of a
/// block are summed.
pub(super) struct Axes {
    pub(super) outer: usize,
    pub(super) count: usize,
    pub(super) inner: usize,
    /// Of the sums; none if the whole array is one sum.
    pub(super) shape: Option<Vec<usize>>,
}

impl Axes {
    /// All `elements` of an array, or those along an axis, counted from the end if it is negative.
    pub(super) fn of(
        array: &Bound<'_, PyAny>,
        elements: usize,
        axis: Option<isize>,
    ) -> PyResult<Self> {
        let Some(axis) = axis else {
            return Ok(Self { outer: 1, count: elements, inner: 1, shape: None });
        };
        let mut shape = shape_of(array)?;
        let dimensions = shape.len();
        let at = if axis < 0 { axis + dimensions as isize } else { axis };
        let at = usize::try_from(at).ok().filter(|&at| at < dimensions).ok_or_else(|| {
            PyValueError::new_err(format!("there is no axis {axis} in an array of {dimensions}"))
        })?;
        if shape.iter().product::<usize>() != elements {
            return Err(PyValueError::new_err("the array's shape is not that of its memory"));
        }
        let outer = shape[..at].iter().product();
        let inner = shape[at + 1..].iter().product();
        let count = shape.remove(at);
        Ok(Self { outer, count, inner, shape: Some(shape) })
    }

    pub(super) fn sums(&self) -> usize {
        self.outer * self.inner
    }

    /// The elements of sum number `sum`; copied to `column` unless they lie one behind the other.
    pub(super) fn elements<'a, T: Copy>(
        &self,
        values: &'a [T],
        sum: usize,
        column: &'a mut Vec<T>,
    ) -> &'a [T] {
        let (block, place) = (sum / self.inner, sum % self.inner);
        let block = &values[block * self.count * self.inner..][..self.count * self.inner];
        if self.inner == 1 {
            return block;
        }
        column.clear();
        column.extend(block.chunks_exact(self.inner).map(|row| row[place]));
        column
    }
}

/// What NumPy, a memoryview and tensors call `shape`.
fn shape_of(array: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    if array.hasattr("shape")? {
        return array.getattr("shape")?.extract();
    }
    Ok(vec![array.len()?])
}
