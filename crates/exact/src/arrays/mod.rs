//! Sums and dot products of long arrays, at the speed of memory where exponents allow it.
//!
//! A block of values is cut at fixed exponents by additions that round ([`blocks`]), so that a few floating-point
//! additions without any rounding sum what lies between two cuts. What a block has below the last cut shows: then more cuts are made, and
//! a block that spans too many exponents goes into the accumulator value by value. So no result depends on the way taken.

mod blocks;

use crate::accumulator::Accumulator;
use crate::class::Class;
use crate::format::{Element, Format, Products, split};
use crate::isa::Isa;
use crate::mode::adds_as_ieee;
use blocks::{BLOCK, BlockSums, LANES, ProductsOf, SumOf};

/// A format whose arrays are summed in blocks.
pub trait ArrayElement: Element + Format<Rounded = Self>
where
    Products<Self>: Format<Rounded = Self>,
{
    /// The values as binary64, which holds them all; `wide` is memory for them if they aren't already.
    #[doc(hidden)]
    fn widen<'a>(values: &'a [Self], wide: &'a mut [f64]) -> &'a [f64];
    /// The products as `high + low`, both binary64. Whether that is exact.
    #[doc(hidden)]
    fn multiply(isa: Isa, left: &[Self], right: &[Self], high: &mut [f64], low: &mut [f64])
    -> bool;
    /// Whether `low` is always zero.
    #[doc(hidden)]
    const FITS: bool;
}

impl ArrayElement for f64 {
    const FITS: bool = false;

    fn widen<'a>(values: &'a [Self], _: &'a mut [f64]) -> &'a [f64] {
        values
    }

    fn multiply(isa: Isa, left: &[f64], right: &[f64], high: &mut [f64], low: &mut [f64]) -> bool {
        isa.run(ProductsOf { left, right, high, low })
    }
}

impl ArrayElement for f32 {
    const FITS: bool = true;

    fn widen<'a>(values: &'a [Self], wide: &'a mut [f64]) -> &'a [f64] {
        for (wide, &value) in wide.iter_mut().zip(values) {
            *wide = f64::from(value);
        }
        wide
    }

    fn multiply(_: Isa, left: &[f32], right: &[f32], high: &mut [f64], _: &mut [f64]) -> bool {
        for ((high, &left), &right) in high.iter_mut().zip(left).zip(right) {
            *high = f64::from(left) * f64::from(right);
        }
        true
    }
}

/// Arrays of different lengths have no dot product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthsDiffer {
    /// Values in the left array.
    pub left: usize,
    /// Values in the right array.
    pub right: usize,
}

impl core::fmt::Display for LengthsDiffer {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "arrays of {} and {} values", self.left, self.right)
    }
}

impl core::error::Error for LengthsDiffer {}

/// The correctly rounded sum of an array.
#[must_use]
pub fn exact_sum<E: ArrayElement>(values: &[E]) -> E
where
    Products<E>: Format<Rounded = E>,
{
    let mut sum = Accumulator::default();
    sum.add_array(Isa::best(), values);
    sum.round()
}

/// The correctly rounded sum of the products of two arrays' values.
pub fn exact_dot<E: ArrayElement>(left: &[E], right: &[E]) -> Result<E, LengthsDiffer>
where
    Products<E>: Format<Rounded = E>,
{
    let mut sum = Accumulator::<Products<E>>::default();
    sum.add_products(Isa::best(), left, right)?;
    Ok(sum.round())
}

impl<E: ArrayElement> Accumulator<E>
where
    Products<E>: Format<Rounded = E>,
{
    /// Adds all values of an array, by the kernels of an instruction set that this processor has.
    pub fn add_array(&mut self, isa: Isa, values: &[E]) {
        let mut wide = [0.0; BLOCK];
        let works = adds_as_ieee();
        for block in values.chunks(BLOCK) {
            let whole = block.len() / LANES * LANES;
            let (body, tail) = block.split_at(whole);
            let wide = E::widen(body, &mut wide[..whole]);
            if !(works && self.add_block(isa, wide)) {
                body.iter().for_each(|&value| self.add(value));
            }
            tail.iter().for_each(|&value| self.add(value));
        }
    }
}

impl<E: ArrayElement> Accumulator<Products<E>>
where
    Products<E>: Format<Rounded = E>,
{
    /// Adds the products of two arrays' values, by the kernels of an instruction set that this processor has.
    pub fn add_products(&mut self, isa: Isa, left: &[E], right: &[E]) -> Result<(), LengthsDiffer> {
        if left.len() != right.len() {
            return Err(LengthsDiffer { left: left.len(), right: right.len() });
        }
        let (mut high, mut low) = ([0.0; BLOCK], [0.0; BLOCK]);
        let works = adds_as_ieee();
        for (left, right) in left.chunks(BLOCK).zip(right.chunks(BLOCK)) {
            let whole = left.len() / LANES * LANES;
            let (high, low) = (&mut high[..whole], &mut low[..whole]);
            let is_summed = works
                && E::multiply(isa, &left[..whole], &right[..whole], high, low)
                && self.add_both(isa, high, if E::FITS { &[] } else { low });
            let done = if is_summed { whole } else { 0 };
            for (&left, &right) in left[done..].iter().zip(&right[done..]) {
                self.add_product(left, right);
            }
        }
        Ok(())
    }

    /// Adds both parts of a block's products, or neither.
    fn add_both(&mut self, isa: Isa, high: &[f64], low: &[f64]) -> bool {
        let before = *self;
        if !self.add_block(isa, high) {
            return false;
        }
        let is_low_zero = low.iter().all(|&value| value == 0.0);
        if !is_low_zero && !self.add_block(isa, low) {
            *self = before;
            return false;
        }
        true
    }
}

impl<F: Format> Accumulator<F> {
    /// Adds a block of multiples of the accumulator's unit. Does nothing, and says so, unless the values are finite, not all zero, and
    /// within few exponents.
    fn add_block(&mut self, isa: Isa, values: &[f64]) -> bool {
        let mut sums = BlockSums::new();
        if values.is_empty() || !isa.run(SumOf { values, sums: &mut sums }) {
            return false;
        }
        self.join(Class::Finite);
        sums.filled_lanes().iter().flatten().for_each(|&value| self.deposit_multiple(value));
        true
    }

    fn deposit_multiple(&mut self, value: f64) {
        let parts = split(value);
        let position = parts.position as i32 + <f64 as Format>::UNIT - F::UNIT;
        if position >= 0 {
            self.deposit(parts.is_negative, parts.significand, position as u32);
        } else if parts.significand != 0 {
            // A multiple of the unit, so the bits that go are zero.
            self.deposit(parts.is_negative, parts.significand >> -position, 0);
        }
    }
}
