//! `exact_sum` and `exact_dot` of a communicator: sums of the elements of all ranks.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use tributary_client::{Collective, Operation};
use tributary_exact::{
    Accumulator, ArrayElement, Element, Format, Isa, Products, integers_per_sum,
};
use tributary_wire::{Datatype, Operator};

use super::axes::Axes;
use super::shared::{elements_of, of_overflow};
use crate::arguments::Asked;
use crate::buffer::Buffer;
use crate::communicator::Communicator;

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// Adds up the integers of all ranks, each to the ones in the same place.
pub(super) fn add_integers(
    py: Python<'_>,
    communicator: &Communicator,
    integers: &mut [i64],
) -> PyResult<()> {
    let memory = integers.as_mut_ptr().cast::<u8>();
    let operation = Operation {
        collective: Collective::Allreduce,
        datatype: Datatype::I64,
        operator: Operator::Sum,
        elements: integers.len() as u64,
        source: memory,
        target: memory,
        ..Operation::BARRIER
    };
    // The caller keeps the integers where they are until the operation is over.
    communicator.run(py, &Asked { operation, ..Asked::barrier() })
}

impl Communicator {
    /// The sums of all ranks' arrays, over everything or along an axis.
    pub(crate) fn sum_exactly<'py>(
        &self,
        array: Object<'_, 'py>,
        axis: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let buffer = Buffer::source(array, "array")?;
        let axes = Axes::of(array, buffer.elements(), axis)?;
        let call = Call { py: array.py(), communicator: self, axes };
        match buffer.element.datatype {
            Some(Datatype::F32) => call.sum::<f32>(&buffer),
            Some(Datatype::F64) => call.sum::<f64>(&buffer),
            _ => Err(not_summed(&buffer)),
        }
    }

    /// The sums of products of two arrays' elements at all ranks, over everything or along an axis.
    pub(crate) fn dot_exactly<'py>(
        &self,
        left: Object<'_, 'py>,
        right: Object<'_, 'py>,
        axis: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let buffers = [Buffer::source(left, "left")?, Buffer::source(right, "right")?];
        let axes = Axes::of(left, buffers[0].elements(), axis)?;
        let other = Axes::of(right, buffers[1].elements(), axis)?;
        if (&axes.shape, axes.count) != (&other.shape, other.count) {
            return Err(PyValueError::new_err("left and right are of different shapes"));
        }
        if buffers[0].element != buffers[1].element {
            let [left, right] = buffers.each_ref().map(|buffer| &buffer.element.name);
            return Err(PyTypeError::new_err(format!(
                "left has elements of {left}, right of {right}"
            )));
        }
        let call = Call { py: left.py(), communicator: self, axes };
        match buffers[0].element.datatype {
            Some(Datatype::F32) => call.dot::<f32>(&buffers),
            Some(Datatype::F64) => call.dot::<f64>(&buffers),
            _ => Err(not_summed(&buffers[0])),
        }
    }
}

fn not_summed(buffer: &Buffer) -> PyErr {
    let name = &buffer.element.name;
    PyTypeError::new_err(format!("exact sums are of float32 and float64, not of {name}"))
}

struct Call<'a, 'py> {
    py: Python<'py>,
    communicator: &'a Communicator,
    axes: Axes,
}

impl<'py> Call<'_, 'py> {
    fn sum<E: ArrayElement + Sync + Send>(&self, buffer: &Buffer) -> PyResult<Bound<'py, PyAny>>
    where
        Products<E>: Format<Rounded = E>,
    {
        // SAFETY: the type was looked at; that nobody writes to the memory meanwhile is what the package asks of its
        // users.
        let values = unsafe { elements_of::<E>(buffer) }?;
        let (axes, mut column) = (&self.axes, Vec::new());
        self.over_ranks::<E>(|number, sum| {
            sum.add_array(Isa::best(), axes.elements(values, number, &mut column));
        })
    }

    fn dot<E: ArrayElement + Sync + Send>(
        &self,
        buffers: &[Buffer; 2],
    ) -> PyResult<Bound<'py, PyAny>>
    where
        Products<E>: Format<Rounded = E>,
    {
        // SAFETY: as in `sum`.
        let (left, right) = unsafe { (elements_of::<E>(&buffers[0])?, elements_of(&buffers[1])?) };
        let (axes, mut column, mut other) = (&self.axes, Vec::new(), Vec::new());
        self.over_ranks::<Products<E>>(|number, sum| {
            let left = axes.elements(left, number, &mut column);
            let right = axes.elements(right, number, &mut other);
            sum.add_products(Isa::best(), left, right).expect("the shapes are equal");
        })
    }

    /// Makes this rank's sums by `add`, adds up those of all ranks, and rounds.
    fn over_ranks<F: Format>(
        &self,
        add: impl FnMut(usize, &mut Accumulator<F>) + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sums = self.axes.sums();
        let mut integers = self.py.detach(|| own_integers(sums, add));
        add_integers(self.py, self.communicator, &mut integers)?;
        let size_bytes = size_of::<F::Rounded>();
        let mut bytes = Vec::with_capacity(sums * size_bytes);
        for integers in integers.chunks_exact(integers_per_sum::<F>()) {
            let mut sum = Accumulator::<F>::default();
            sum.merge_integers(integers).map_err(of_overflow)?;
            bytes.extend_from_slice(&sum.round().to_bits_u64().to_le_bytes()[..size_bytes]);
        }
        self.results(&bytes, size_bytes)
    }

    /// One number, or a NumPy array of the sums.
    fn results(&self, bytes: &[u8], size_bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        let dtype = if size_bytes == 4 { "<f4" } else { "<f8" };
        let memory = PyByteArray::new(self.py, bytes);
        let Some(shape) = &self.axes.shape else {
            let format = if size_bytes == 4 { "<f" } else { "<d" };
            let numbers = self.py.import("struct")?.call_method1("unpack", (format, memory))?;
            return numbers.get_item(0);
        };
        let array = self.py.import("numpy")?.call_method1("frombuffer", (memory, dtype))?;
        array.call_method1("reshape", (shape.clone(),))
    }
}

fn own_integers<F: Format>(
    sums: usize,
    mut add: impl FnMut(usize, &mut Accumulator<F>),
) -> Vec<i64> {
    let mut integers = vec![0; sums * integers_per_sum::<F>()];
    for (number, integers) in integers.chunks_exact_mut(integers_per_sum::<F>()).enumerate() {
        let mut sum = Accumulator::default();
        add(number, &mut sum);
        sum.write_integers(integers);
    }
    integers
}
