//! A sum whose format is known at run time only, as other languages have it.

use crate::accumulator::Accumulator;
use crate::arrays::LengthsDiffer;
use crate::encoding::{DecodeError, encoded_bytes_max, encoded_format};
use crate::format::{Format, Products};
use crate::integers::integers_per_sum;
use crate::isa::Isa;
use crate::window::{Overflow, Window};

/// An accumulator of one of the formats whose arrays are summed.
#[allow(clippy::large_enum_variant, reason = "a sum is kept in place, and there are few of them")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnySum {
    /// Of binary32.
    Floats(Accumulator<f32>),
    /// Of binary64.
    Doubles(Accumulator<f64>),
    /// Of products of two binary32.
    FloatProducts(Accumulator<Products<f32>>),
    /// Of products of two binary64.
    DoubleProducts(Accumulator<Products<f64>>),
}

/// What can't be added to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The sum is of another format.
    Format,
    /// The factors differ in number.
    Lengths(LengthsDiffer),
    /// The sum would leave its width.
    Overflow(Overflow),
}

impl core::fmt::Display for AddError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Format => formatter.write_str("the sum is of another format"),
            Self::Lengths(lengths) => lengths.fmt(formatter),
            Self::Overflow(overflow) => overflow.fmt(formatter),
        }
    }
}

impl core::error::Error for AddError {}

/// Does the same with the accumulator of whatever format.
macro_rules! with_accumulator {
    ($sum:expr, $accumulator:ident => $body:expr) => {
        match $sum {
            AnySum::Floats($accumulator) => $body,
            AnySum::Doubles($accumulator) => $body,
            AnySum::FloatProducts($accumulator) => $body,
            AnySum::DoubleProducts($accumulator) => $body,
        }
    };
}

impl AnySum {
    /// The bytes that the longest encoding has.
    pub const ENCODED_BYTES_MAX: usize = encoded_bytes_max::<Products<f64>>();

    /// An empty sum of the format with that number in an encoding; `None` if arrays of it aren't summed.
    #[must_use]
    pub fn of_format(code: u8) -> Option<Self> {
        match code {
            <f32 as Format>::CODE => Some(Self::Floats(Accumulator::default())),
            <f64 as Format>::CODE => Some(Self::Doubles(Accumulator::default())),
            <Products<f32> as Format>::CODE => Some(Self::FloatProducts(Accumulator::default())),
            <Products<f64> as Format>::CODE => Some(Self::DoubleProducts(Accumulator::default())),
            _ => None,
        }
    }

    /// Reads an encoding of any of the formats.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let format = encoded_format(bytes).and_then(Self::of_format);
        // The decoder of any format says what is wrong with a code that is unknown.
        let mut sum = format.unwrap_or(Self::Doubles(Accumulator::default()));
        sum.replace(bytes)?;
        Ok(sum)
    }

    /// The number of the format in an encoding.
    #[must_use]
    pub fn format(&self) -> u8 {
        match self {
            Self::Floats(_) => f32::CODE,
            Self::Doubles(_) => f64::CODE,
            Self::FloatProducts(_) => Products::<f32>::CODE,
            Self::DoubleProducts(_) => Products::<f64>::CODE,
        }
    }

    /// Makes the sum that of nothing.
    pub fn clear(&mut self) {
        with_accumulator!(self, sum => *sum = Accumulator::default());
    }

    /// Adds all values of an array.
    pub fn add_floats(&mut self, values: &[f32]) -> Result<(), AddError> {
        let Self::Floats(sum) = self else { return Err(AddError::Format) };
        sum.add_array(Isa::best(), values);
        Ok(())
    }

    /// Adds all values of an array.
    pub fn add_doubles(&mut self, values: &[f64]) -> Result<(), AddError> {
        let Self::Doubles(sum) = self else { return Err(AddError::Format) };
        sum.add_array(Isa::best(), values);
        Ok(())
    }

    /// Adds the products of two arrays' values.
    pub fn add_float_products(&mut self, left: &[f32], right: &[f32]) -> Result<(), AddError> {
        let Self::FloatProducts(sum) = self else { return Err(AddError::Format) };
        sum.add_products(Isa::best(), left, right).map_err(AddError::Lengths)
    }

    /// Adds the products of two arrays' values.
    pub fn add_double_products(&mut self, left: &[f64], right: &[f64]) -> Result<(), AddError> {
        let Self::DoubleProducts(sum) = self else { return Err(AddError::Format) };
        sum.add_products(Isa::best(), left, right).map_err(AddError::Lengths)
    }

    /// Adds a sum of the same format.
    pub fn merge(&mut self, other: &Self) -> Result<(), AddError> {
        let merged = match (self, other) {
            (Self::Floats(sum), Self::Floats(other)) => sum.merge(other),
            (Self::Doubles(sum), Self::Doubles(other)) => sum.merge(other),
            (Self::FloatProducts(sum), Self::FloatProducts(other)) => sum.merge(other),
            (Self::DoubleProducts(sum), Self::DoubleProducts(other)) => sum.merge(other),
            _ => return Err(AddError::Format),
        };
        merged.map_err(AddError::Overflow)
    }

    /// The sum, rounded. Every binary32 is a binary64.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self {
            Self::Floats(sum) => f64::from(sum.round()),
            Self::Doubles(sum) => sum.round(),
            Self::FloatProducts(sum) => f64::from(sum.round()),
            Self::DoubleProducts(sum) => sum.round(),
        }
    }

    /// Writes the encoding and says how long it is; `None` if it doesn't fit.
    #[must_use]
    pub fn encode(&self, bytes: &mut [u8]) -> Option<usize> {
        with_accumulator!(self, sum => sum.to_window().encode(bytes))
    }

    /// Becomes the sum that is encoded, of the own format. On an error nothing has changed.
    pub fn replace(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        with_accumulator!(self, sum => {
            *sum = decode_accumulator(bytes)?;
            Ok(())
        })
    }

    /// How many integers the sum has.
    #[must_use]
    pub fn integers(&self) -> usize {
        with_accumulator!(self, sum => integers_of(sum))
    }

    /// Writes the sum as integers that may be added; see [`Accumulator::write_integers`].
    pub fn write_integers(&self, integers: &mut [i64]) {
        with_accumulator!(self, sum => sum.write_integers(integers));
    }

    /// Becomes the sum that the integers are. On an error nothing has changed.
    pub fn read_integers(&mut self, integers: &[i64]) -> Result<(), Overflow> {
        with_accumulator!(self, sum => {
            let mut total = Accumulator::default();
            total.merge_integers(integers)?;
            *sum = total;
            Ok(())
        })
    }
}

fn decode_accumulator<F: Format>(bytes: &[u8]) -> Result<Accumulator<F>, DecodeError> {
    let mut sum = Accumulator::default();
    sum.merge_window(&Window::decode(bytes)?)
        .expect("a window that was read leaves room for a merge");
    Ok(sum)
}

fn integers_of<F: Format>(_: &Accumulator<F>) -> usize {
    integers_per_sum::<F>()
}
