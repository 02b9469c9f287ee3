//! The reduction kernels, as the shared-memory engine takes them.

use std::sync::OnceLock;

use tributary_reduce::{Accumulation, Kernel, accumulator_bytes};
use tributary_wire::{Datatype, Operator};

use crate::host::{Combine, Wide};

/// Every kernel there is.
pub(crate) struct Kernels(Vec<Option<Adapter>>);

impl Kernels {
    /// The table, made at the first call.
    pub(crate) fn all() -> &'static Self {
        static TABLE: OnceLock<Kernels> = OnceLock::new();
        TABLE.get_or_init(|| {
            let pairs = Operator::ALL.into_iter().flat_map(|operator| {
                Datatype::ALL.into_iter().map(move |datatype| (operator, datatype))
            });
            Self(pairs.map(|(operator, datatype)| Adapter::new(operator, datatype)).collect())
        })
    }

    /// The kernel for an operator on a datatype; none where MPI defines none.
    #[inline]
    pub(crate) fn kernel(&self, operator: Operator, datatype: Datatype) -> Option<&dyn Combine> {
        let row = usize::from(operator.code() - 1) * Datatype::ALL.len();
        let adapter = self.0[row + usize::from(datatype.code() - 1)].as_ref()?;
        Some(adapter)
    }
}

/// The kernel for an operator on a datatype; none where MPI defines none.
#[cfg(test)]
pub(crate) fn kernel(operator: Operator, datatype: Datatype) -> Option<&'static dyn Combine> {
    Kernels::all().kernel(operator, datatype)
}

/// A kernel with what the engine asks of it.
struct Adapter {
    kernel: Kernel,
    /// Wider accumulation, for the datatypes that have one.
    wide: Option<WideAdapter>,
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
        Some(Self { kernel, wide })
    }
}

impl Combine for Adapter {
    fn element_bytes(&self) -> usize {
        self.kernel.datatype().size_bytes()
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        self.kernel.combine_into(target, left, right);
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        self.kernel.fold(target, source);
    }

    fn wide(&self) -> Option<&dyn Wide> {
        self.wide.as_ref().map(|wide| wide as &dyn Wide)
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
