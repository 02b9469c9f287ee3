//! `tributary.ExactSum`: one sum that a program keeps, merges and sends.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tributary_exact::{AddError, AnySum, Format, Products};
use tributary_wire::Datatype;

use super::over_ranks::add_integers;
use super::shared::{elements_of, of_overflow};
use crate::buffer::Buffer;
use crate::communicator::Communicator;

/// An exact sum: the real sum of all values that were added, which is rounded only when it is read.
///
/// It does not depend on the order of additions and merges. `dtype` is "float32" or "float64". With
/// `products` it sums products of two such values, and takes pairs of arrays.
#[pyclass(module = "tributary")]
pub(crate) struct ExactSum {
    sum: AnySum,
}

#[pymethods]
impl ExactSum {
    #[new]
    #[pyo3(signature = (dtype="float64", *, products=false))]
    fn new(dtype: &str, products: bool) -> PyResult<Self> {
        let code = match (dtype, products) {
            ("float32", false) => Some(<f32 as Format>::CODE),
            ("float64", false) => Some(<f64 as Format>::CODE),
            ("float32", true) => Some(<Products<f32> as Format>::CODE),
            ("float64", true) => Some(<Products<f64> as Format>::CODE),
            _ => None,
        };
        let sum = code.and_then(AnySum::of_format).ok_or_else(|| {
            PyValueError::new_err(format!(
                "there are exact sums of float32 and float64, not of {dtype:?}"
            ))
        })?;
        Ok(Self { sum })
    }

    /// Reads what `encode` has written, on this machine or another one. Raises ValueError if the bytes are not a sum.
    #[staticmethod]
    fn decode(data: &[u8]) -> PyResult<Self> {
        let sum = AnySum::decode(data);
        let sum =
            sum.map_err(|error| PyValueError::new_err(format!("not an exact sum: {error}")))?;
        Ok(Self { sum })
    }

    /// Adds all values of an array. Raises TypeError if its elements are of another type.
    fn add(&mut self, py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<()> {
        let source = Buffer::source(source, "source")?;
        let sum = &mut self.sum;
        let added = match (&*sum, source.element.datatype) {
            (AnySum::Floats(_), Some(Datatype::F32)) => {
                // SAFETY: its type was looked at; that nobody writes to it meanwhile is what the package asks of its
                // users.
                let values = unsafe { elements_of(&source) }?;
                py.detach(|| sum.add_floats(values))
            }
            (AnySum::Doubles(_), Some(Datatype::F64)) => {
                // SAFETY: as above.
                let values = unsafe { elements_of(&source) }?;
                py.detach(|| sum.add_doubles(values))
            }
            _ => return Err(self.not_taken(&source, "values")),
        };
        added.map_err(|error| of_addition(&error))
    }

    /// Adds the products of two arrays' values. Raises TypeError if their elements are of another type, ValueError for
    /// lengths that differ.
    fn add_products(
        &mut self,
        py: Python<'_>,
        left: &Bound<'_, PyAny>,
        right: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (left, right) = (Buffer::source(left, "left")?, Buffer::source(right, "right")?);
        let sum = &mut self.sum;
        if left.element != right.element {
            return Err(self.not_taken(&right, "factors"));
        }
        let added = match (&*sum, left.element.datatype) {
            (AnySum::FloatProducts(_), Some(Datatype::F32)) => {
                // SAFETY: as in `add`.
                let (left, right) = unsafe { (elements_of(&left)?, elements_of(&right)?) };
                py.detach(|| sum.add_float_products(left, right))
            }
            (AnySum::DoubleProducts(_), Some(Datatype::F64)) => {
                // SAFETY: as in `add`.
                let (left, right) = unsafe { (elements_of(&left)?, elements_of(&right)?) };
                py.detach(|| sum.add_double_products(left, right))
            }
            _ => return Err(self.not_taken(&left, "factors")),
        };
        added.map_err(|error| of_addition(&error))
    }

    /// Adds another sum of the same kind. Raises TypeError if it is of another one.
    fn merge(&mut self, other: &Self) -> PyResult<()> {
        self.sum.merge(&other.sum).map_err(|error| of_addition(&error))
    }

    /// Adds up the sums that the ranks have, and gives the result to all. Collective: all ranks call it, with sums of
    /// one kind. Raises as `Communicator.allreduce`.
    fn allreduce(&mut self, py: Python<'_>, communicator: &Communicator) -> PyResult<()> {
        let mut integers = vec![0; self.sum.integers()];
        self.sum.write_integers(&mut integers);
        add_integers(py, communicator, &mut integers)?;
        self.sum.read_integers(&integers).map_err(of_overflow)
    }

    /// The sum rounded to nearest, ties to even.
    fn value(&self) -> f64 {
        self.sum.value()
    }

    /// The sum as bytes, as the book's page on exact sums describes them. Equal sums have equal bytes.
    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = [0; AnySum::ENCODED_BYTES_MAX];
        let len_bytes =
            self.sum.encode(&mut bytes).expect("there is room for the longest encoding");
        PyBytes::new(py, &bytes[..len_bytes])
    }

    fn __float__(&self) -> f64 {
        self.value()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.sum == other.sum
    }

    fn __copy__(&self) -> Self {
        Self { sum: self.sum }
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        Self { sum: self.sum }
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let decode = slf.get_type().getattr("decode")?;
        Ok((decode, (slf.borrow().encode(slf.py()),)))
    }

    fn __repr__(&self) -> String {
        format!("<tributary.ExactSum of {}: {:?}>", self.kind(), self.value())
    }
}

impl ExactSum {
    fn kind(&self) -> &'static str {
        match self.sum {
            AnySum::Floats(_) => "float32",
            AnySum::Doubles(_) => "float64",
            AnySum::FloatProducts(_) => "products of float32",
            AnySum::DoubleProducts(_) => "products of float64",
        }
    }

    fn not_taken(&self, buffer: &Buffer, what: &str) -> PyErr {
        let (element, kind) = (&buffer.element.name, self.kind());
        PyTypeError::new_err(format!("a sum of {kind} does not take {what} of {element}"))
    }
}

fn of_addition(error: &AddError) -> PyErr {
    match error {
        AddError::Format => PyTypeError::new_err(error.to_string()),
        AddError::Lengths(_) => PyValueError::new_err(error.to_string()),
        AddError::Overflow(overflow) => of_overflow(*overflow),
    }
}
