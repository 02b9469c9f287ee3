//! One operator on one datatype, resolved to the functions for this processor.

use tributary_wire::{Datatype, Operator};

use crate::Isa;
use crate::dispatch::{Functions, functions};

/// One operator on one datatype, ready to run.
///
/// Create it once per operation and use it for all segments: creating it looks the functions up, and
/// each use is one indirect call.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    operator: Operator,
    datatype: Datatype,
    isa: Isa,
    /// A power of two, so the check for whole elements needs no division.
    element_bytes: usize,
    functions: Functions,
}

impl Kernel {
    /// The fastest kernel this processor can run.
    ///
    /// `None` if `operator` does not combine elements of `datatype`: where
    /// [`Operator::applies_to`] says no, and for barrier and broadcast.
    #[must_use]
    pub fn new(operator: Operator, datatype: Datatype) -> Option<Self> {
        Self::with_isa(Isa::best(), operator, datatype)
    }

    /// The kernel compiled for `isa`, for tests and measurements.
    ///
    /// `None` where [`Kernel::new`] returns `None`, and if this processor does not have `isa`.
    #[must_use]
    pub fn with_isa(isa: Isa, operator: Operator, datatype: Datatype) -> Option<Self> {
        let functions = functions(isa, operator, datatype)?;
        let element_bytes = datatype.size_bytes();
        debug_assert!(element_bytes.is_power_of_two());
        Some(Self { operator, datatype, isa, element_bytes, functions })
    }

    /// The same operator on the same datatype by other functions, which take slices as [`fold`](Self::fold) and
    /// [`combine_into`](Self::combine_into) do, of equal lengths and whole elements.
    #[must_use]
    pub fn with_functions(
        self,
        fold: fn(&mut [u8], &[u8]),
        combine: fn(&mut [u8], &[u8], &[u8]),
    ) -> Self {
        Self { functions: Functions { fold, combine }, ..self }
    }

    /// Size of one element of its datatype.
    #[inline]
    #[must_use]
    pub const fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    /// The operator it carries out.
    #[must_use]
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// The datatype it works on.
    #[must_use]
    pub const fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// The instruction set it was compiled for.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// `target = target OP source`, element by element.
    ///
    /// `target` is the operand of the lower rank. Any alignment will do. 16-bit floats are rounded
    /// by each call; see [`crate::Accumulation`] for one rounding over many.
    ///
    /// # Panics
    /// If the lengths differ or don't hold whole elements.
    #[inline]
    pub fn fold(&self, target: &mut [u8], source: &[u8]) {
        assert_eq!(target.len(), source.len(), "operands must have the same length");
        self.assert_whole(target.len());
        // SAFETY: `with_isa` gives functions only for an instruction set the processor has.
        unsafe { (self.functions.fold)(target, source) }
    }

    /// `target = left OP right`, element by element; the previous content of `target` does not matter.
    ///
    /// `left` is the operand of the lower rank. Any alignment will do.
    ///
    /// # Panics
    /// If the lengths differ or don't hold whole elements.
    #[inline]
    pub fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        assert_eq!(left.len(), right.len(), "operands must have the same length");
        assert_eq!(target.len(), left.len(), "the result must have the length of its operands");
        self.assert_whole(target.len());
        // SAFETY: `with_isa` gives functions only for an instruction set the processor has.
        unsafe { (self.functions.combine)(target, left, right) }
    }

    #[inline]
    fn assert_whole(&self, len_bytes: usize) {
        let element_bytes = self.element_bytes;
        assert!(
            len_bytes & (element_bytes - 1) == 0,
            "{len_bytes} bytes are not a whole number of {element_bytes}-byte elements"
        );
    }
}

/// [`Kernel::fold`], for a caller that has only one vector.
///
/// # Panics
/// If `operator` does not combine elements of `datatype`; and as [`Kernel::fold`] does.
pub fn fold(operator: Operator, datatype: Datatype, target: &mut [u8], source: &[u8]) {
    resolve(operator, datatype).fold(target, source);
}

/// [`Kernel::combine_into`], for a caller that has only one vector.
///
/// # Panics
/// If `operator` does not combine elements of `datatype`; and as [`Kernel::combine_into`] does.
pub fn combine_into(
    operator: Operator,
    datatype: Datatype,
    target: &mut [u8],
    left: &[u8],
    right: &[u8],
) {
    resolve(operator, datatype).combine_into(target, left, right);
}

fn resolve(operator: Operator, datatype: Datatype) -> Kernel {
    let Some(kernel) = Kernel::new(operator, datatype) else {
        panic!("{} does not combine elements of {}", operator.name(), datatype.name());
    };
    kernel
}
