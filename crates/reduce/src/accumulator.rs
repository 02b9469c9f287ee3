//! Merging many contributions into one accumulator, rounding 16-bit floats once.
//!
//! The accumulator of a 16-bit float holds binary32 values, so it is twice as long as a
//! contribution; that of every other datatype holds the elements themselves.

use tributary_wire::{Datatype, Operator};

use crate::dispatch::{WideFunctions, wide_functions};
use crate::{Isa, Kernel};

/// How many times longer than a contribution an accumulator can be.
const WIDENING_MAX: usize = 2;

/// Length of the accumulator of `elements` elements of `datatype`.
///
/// # Panics
/// If the length overflows `usize`.
#[must_use]
pub fn accumulator_bytes(datatype: Datatype, elements: usize) -> usize {
    elements
        .checked_mul(datatype.size_bytes())
        .and_then(|bytes| bytes.checked_mul(widening(datatype)))
        .expect("an accumulator is at most twice as long as a vector in memory")
}

/// The longest accumulator for contributions of at most `payload_max_bytes`, whatever the datatype: how
/// much memory to reserve before the datatype is known.
#[must_use]
pub const fn accumulator_bytes_max(payload_max_bytes: usize) -> usize {
    payload_max_bytes * WIDENING_MAX
}

/// One operator on one datatype, merging any number of contributions.
///
/// [`Accumulation::begin`] with the first contribution, [`Accumulation::fold`] with each later one
/// in order, then [`Accumulation::finish`]. The accumulator is the caller's memory, of
/// [`accumulator_bytes`].
#[derive(Clone, Copy, Debug)]
pub struct Accumulation {
    kernel: Kernel,
    wide: Option<WideFunctions>,
}

impl Accumulation {
    /// The fastest accumulation this processor can run.
    ///
    /// `None` if `operator` does not combine elements of `datatype`: where
    /// [`Operator::applies_to`] says no, and for barrier and broadcast.
    #[must_use]
    pub fn new(operator: Operator, datatype: Datatype) -> Option<Self> {
        Self::with_isa(Isa::best(), operator, datatype)
    }

    /// The accumulation compiled for `isa`, for tests and measurements.
    ///
    /// `None` where [`Accumulation::new`] returns `None`, and if this processor does not have `isa`.
    #[must_use]
    pub fn with_isa(isa: Isa, operator: Operator, datatype: Datatype) -> Option<Self> {
        let kernel = Kernel::with_isa(isa, operator, datatype)?;
        Some(Self { kernel, wide: wide_functions(isa, operator, datatype) })
    }

    /// Makes `accumulator` hold the first contribution.
    ///
    /// # Panics
    /// If `accumulator` is not [`accumulator_bytes`] long for the elements of `source`, or if
    /// `source` does not hold whole elements.
    pub fn begin(&self, accumulator: &mut [u8], source: &[u8]) {
        self.assert_lengths(accumulator, source);
        match self.wide {
            // SAFETY: `wide_functions` gives functions only for an instruction set the processor has.
            Some(wide) => unsafe { (wide.begin)(accumulator, source) },
            None => accumulator.copy_from_slice(source),
        }
    }

    /// `accumulator = accumulator OP source`, without rounding to 16 bits.
    ///
    /// # Panics
    /// As [`Accumulation::begin`].
    pub fn fold(&self, accumulator: &mut [u8], source: &[u8]) {
        self.assert_lengths(accumulator, source);
        match self.wide {
            // SAFETY: `wide_functions` gives functions only for an instruction set the processor has.
            Some(wide) => unsafe { (wide.fold)(accumulator, source) },
            None => self.kernel.fold(accumulator, source),
        }
    }

    /// Rounds once, and returns the result's bytes in wire format: the front of `accumulator`. The rest
    /// of it is unused from then on.
    ///
    /// # Panics
    /// If `accumulator` does not hold whole elements.
    pub fn finish<'a>(&self, accumulator: &'a mut [u8]) -> &'a mut [u8] {
        let datatype = self.kernel.datatype();
        let element_bytes = datatype.size_bytes() * widening(datatype);
        assert!(
            accumulator.len().is_multiple_of(element_bytes),
            "{} bytes are not a whole number of {element_bytes}-byte elements",
            accumulator.len()
        );
        if let Some(wide) = self.wide {
            // SAFETY: `wide_functions` gives functions only for an instruction set the processor has.
            unsafe { (wide.finish)(accumulator) };
        }
        let result_bytes = accumulator.len() / widening(datatype);
        &mut accumulator[..result_bytes]
    }

    /// The kernel that combines contributions without a wider accumulator, rounding each time.
    #[must_use]
    pub const fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn assert_lengths(&self, accumulator: &[u8], source: &[u8]) {
        let datatype = self.kernel.datatype();
        let size_bytes = datatype.size_bytes();
        assert!(
            source.len().is_multiple_of(size_bytes),
            "{} bytes are not a whole number of {size_bytes}-byte elements",
            source.len()
        );
        assert_eq!(
            accumulator.len(),
            accumulator_bytes(datatype, source.len() / size_bytes),
            "the accumulator must have the length that its datatype requires"
        );
    }
}

/// How many times longer than an element of `datatype` its accumulator is.
const fn widening(datatype: Datatype) -> usize {
    match datatype {
        Datatype::F16 | Datatype::Bf16 => WIDENING_MAX,
        _ => 1,
    }
}
