//! Operators that the caller of an operation brings, because no kernel has them.

use std::mem;

use tributary_shm_collectives::Combine;

/// An operator of the caller's own, for one operation.
///
/// Combines in rank order inside a host, and between hosts over direct links, in the order of the hosts;
/// aggregation nodes cannot call it.
#[derive(Clone, Copy, Debug)]
pub struct Combiner {
    kernel: *const dyn Combine,
    element_bytes: usize,
    commutes: bool,
}

impl Combiner {
    /// An operator that is valid as long as the operation to which the caller gives it. `commutes` says
    /// whether operands may change places, and is the same at all ranks, as the size of elements is.
    #[must_use]
    pub fn new(kernel: &dyn Combine, commutes: bool) -> Self {
        let element_bytes = kernel.element_bytes();
        let kernel: *const (dyn Combine + '_) = kernel;
        // SAFETY: pointers to the same trait, which differ in a lifetime only; who follows this one
        // answers for it (`kernel`).
        let kernel = unsafe {
            mem::transmute::<*const (dyn Combine + '_), *const (dyn Combine + 'static)>(kernel)
        };
        Self { kernel, element_bytes, commutes }
    }

    /// Size of one element in bytes.
    #[must_use]
    pub const fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    /// Whether operands may change places.
    #[must_use]
    pub const fn commutes(&self) -> bool {
        self.commutes
    }

    /// The operator.
    ///
    /// # Safety
    /// It is still valid, and stays so as long as the result is used.
    pub(crate) unsafe fn kernel(&self) -> &'static dyn Combine {
        // SAFETY: `new` got it from a reference, which is valid by this function's contract.
        unsafe { &*self.kernel }
    }
}
