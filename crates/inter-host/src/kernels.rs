//! The reduction kernels, as the shared-memory engine takes them.

use std::sync::OnceLock;

use tributary_reduce::{Accumulation, Kernel, accumulator_bytes};
use tributary_wire::{Datatype, Operator};

use tributary_shm_collectives::{AtOnce, Combine, Wide};

use crate::exact_kernels::ExactSum;

/// Room for datatype codes in a [`PairNumber`].
const DATATYPES_MAX: u32 = 32;
/// Room for the numbers of all pairs.
const PAIRS_MAX: usize = 16 * DATATYPES_MAX as usize;

/// An operator and a datatype in one number, as callers of the fast path keep them at hand. Any number
/// may be asked for; most are no pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairNumber(pub u32);

impl PairNumber {
    /// The number of a pair: the operator's code times 32, and the datatype's.
    #[inline]
    #[must_use]
    pub fn new(operator: Operator, datatype: Datatype) -> Self {
        Self(u32::from(operator.code()) * DATATYPES_MAX + u32::from(datatype.code()))
    }

    /// The pair of the number; none if it is no pair.
    pub fn pair(self) -> Option<(Operator, Datatype)> {
        let code = |number| u8::try_from(number).ok();
        let operator = Operator::from_code(code(self.0 / DATATYPES_MAX)?).ok()?;
        let datatype = Datatype::from_code(code(self.0 % DATATYPES_MAX)?).ok()?;
        Some((operator, datatype))
    }
}

/// Every kernel there is, by the number of its pair.
pub struct Kernels(Vec<Option<Adapter>>);

impl Kernels {
    /// The table, made at the first call.
    pub fn all() -> &'static Self {
        static TABLE: OnceLock<Kernels> = OnceLock::new();
        TABLE.get_or_init(|| Self::of_pairs(Adapter::new))
    }

    /// The same without sums of floats, for communicators of several hosts whose sums are exact: these add integers instead.
    pub fn without_float_sums() -> &'static Self {
        static TABLE: OnceLock<Kernels> = OnceLock::new();
        TABLE.get_or_init(|| {
            Self::of_pairs(|operator, datatype| match is_float_sum(operator, datatype) {
                true => None,
                false => Adapter::new(operator, datatype),
            })
        })
    }

    /// The same with exact sums of floats, for communicators of one host.
    pub fn with_exact_sums() -> &'static Self {
        static TABLE: OnceLock<Kernels> = OnceLock::new();
        TABLE.get_or_init(|| {
            Self::of_pairs(|operator, datatype| {
                let plain = Adapter::new(operator, datatype)?;
                Some(if is_float_sum(operator, datatype) { plain.into_exact() } else { plain })
            })
        })
    }

    fn of_pairs(adapter: impl Fn(Operator, Datatype) -> Option<Adapter>) -> Self {
        let mut table: Vec<_> = (0..PAIRS_MAX).map(|_| None).collect();
        for operator in Operator::ALL {
            for datatype in Datatype::ALL {
                let PairNumber(number) = PairNumber::new(operator, datatype);
                table[number as usize] = adapter(operator, datatype);
            }
        }
        Self(table)
    }

    /// The kernel for an operator on a datatype; none where MPI defines none.
    #[inline]
    pub fn kernel(&self, operator: Operator, datatype: Datatype) -> Option<&dyn Combine> {
        let adapter = self.adapter(PairNumber::new(operator, datatype))?;
        Some(adapter)
    }

    /// The same by the number of the pair; none where the number is of no pair.
    #[inline]
    pub fn adapter(&self, pair: PairNumber) -> Option<&Adapter> {
        self.0.get(pair.0 as usize)?.as_ref()
    }
}

/// Whether this adds floats, or complex numbers.
#[must_use]
#[inline]
pub fn is_float_sum(operator: Operator, datatype: Datatype) -> bool {
    operator == Operator::Sum && !datatype.is_integer() && operator.applies_to(datatype)
}

/// The kernel for an operator on a datatype; none where MPI defines none.
pub fn kernel(operator: Operator, datatype: Datatype) -> Option<&'static dyn Combine> {
    Kernels::all().kernel(operator, datatype)
}

/// A kernel with what the engine asks of it.
pub struct Adapter {
    kernel: Kernel,
    /// The number of the pair.
    number: u16,
    /// Wider accumulation, for the datatypes that have one.
    wide: Option<WideAdapter>,
    /// The sum of all ranks, where partial sums are not to be rounded; the kernel is that of two ranks.
    exact: Option<ExactSum>,
}

struct WideAdapter {
    accumulation: Accumulation,
    accumulator_bytes: usize,
}

impl Adapter {
    fn new(operator: Operator, datatype: Datatype) -> Option<Self> {
        let kernel = Kernel::new(operator, datatype)?;
        let accumulator_bytes = accumulator_bytes(datatype, 1);
        let accumulation = Accumulation::new(operator, datatype)?;
        let wide = (accumulator_bytes > datatype.size_bytes())
            .then_some(WideAdapter { accumulation, accumulator_bytes });
        let PairNumber(number) = PairNumber::new(operator, datatype);
        Some(Self { kernel, number: number as u16, wide, exact: None })
    }

    /// The exact sum in place of this one.
    fn into_exact(self) -> Self {
        let (exact, kernel) = ExactSum::new(self.kernel);
        Self { kernel, wide: None, exact: Some(exact), ..self }
    }
}

impl Adapter {
    /// Length of so many elements; the longest there is, where that has no number.
    #[inline]
    pub fn len_bytes(&self, elements: u64) -> usize {
        usize::try_from(elements)
            .ok()
            .and_then(|elements| elements.checked_mul(self.kernel.element_bytes()))
            .unwrap_or(usize::MAX)
    }
}

impl Combine for Adapter {
    #[inline]
    fn element_bytes(&self) -> usize {
        self.kernel.element_bytes()
    }

    #[inline]
    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        self.kernel.combine_into(target, left, right);
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        self.kernel.fold(target, source);
    }

    #[inline]
    fn number(&self) -> u16 {
        self.number
    }

    fn wide(&self) -> Option<&dyn Wide> {
        self.wide.as_ref().map(|wide| wide as &dyn Wide)
    }

    fn at_once(&self) -> Option<&dyn AtOnce> {
        self.exact.as_ref().map(|exact| exact as &dyn AtOnce)
    }
}

impl Wide for WideAdapter {
    fn accumulator_bytes(&self) -> usize {
        self.accumulator_bytes
    }

    fn begin(&self, accumulator: &mut [u8], source: &[u8]) {
        self.accumulation.begin(accumulator, source);
    }

    fn fold(&self, accumulator: &mut [u8], source: &[u8]) {
        self.accumulation.fold(accumulator, source);
    }

    fn finish(&self, target: &mut [u8], accumulator: &mut [u8]) {
        target.copy_from_slice(self.accumulation.finish(accumulator));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_a_number_of_its_own_and_the_kernel_behind_it() {
        let mut seen = std::collections::BTreeSet::new();
        for operator in Operator::ALL {
            for datatype in Datatype::ALL {
                let number = PairNumber::new(operator, datatype);
                assert!(seen.insert(number.0), "{operator:?} on {datatype:?}");
                assert_eq!(number.pair(), Some((operator, datatype)));
                let adapter = Kernels::all().adapter(number);
                let is_defined = operator.is_reduction() && operator.applies_to(datatype);
                assert_eq!(adapter.is_some(), is_defined, "{operator:?} on {datatype:?}");
                if let Some(Adapter { kernel, .. }) = adapter {
                    assert_eq!((kernel.operator(), kernel.datatype()), (operator, datatype));
                    assert_eq!(kernel.element_bytes(), datatype.size_bytes());
                }
            }
        }
        let strange = [0, 31, PAIRS_MAX as u32, u32::MAX].map(PairNumber);
        assert!(strange.into_iter().all(|number| Kernels::all().adapter(number).is_none()));
        assert!(strange.into_iter().all(|number| number.pair().is_none()));
    }
}
