//! What a collective of the interface is made of: operations of the host library, one as a rule, and
//! memory that lies between them and the client's.

use std::ptr;

use tributary_client::{Operation, Request};

use crate::communicator::Group;
use crate::failure::Failure;

/// A collective that can be run or started.
#[derive(Default)]
pub(crate) struct Work {
    /// In order. The operations use what the other members have.
    pub(crate) operations: Vec<Operation>,
    /// The limits of a reduce-scatter's blocks.
    pub(crate) cuts: Vec<u64>,
    /// A source or a result that can't lie where the client's does.
    pub(crate) staged: Vec<u8>,
    /// Where the client wants what is staged, if it is the result.
    pub(crate) landing: Option<*mut u8>,
}

// SAFETY: the pointers are the client's buffers, which it leaves to us until the operation is over, from any
// thread; and the vectors' own memory.
unsafe impl Send for Work {}

impl Work {
    /// One operation between the client's buffers.
    pub(crate) fn of(operation: Operation) -> Self {
        Self { operations: vec![operation], ..Self::default() }
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// If an operation fails.
    ///
    /// # Safety
    /// The client's buffers are valid, and nobody else uses them, during this call.
    pub(crate) unsafe fn run(self, group: &Group) -> Result<(), Failure> {
        for operation in &self.operations {
            // SAFETY: as the caller promises; the other members of `self` outlive the call.
            unsafe { group.communicator.run(operation) }?;
        }
        // SAFETY: as the caller promises.
        unsafe { self.land() };
        Ok(())
    }

    /// Starts it. The requests come in the order of the operations.
    ///
    /// # Errors
    /// If an operation can't be started. Those before it go on, so nothing of `self` is freed.
    ///
    /// # Safety
    /// The client's buffers are valid, and nobody else uses them, until the requests are done; so is `self`.
    pub(crate) unsafe fn start(&self, group: &Group) -> Result<Vec<Request>, Failure> {
        let start = |operation: &Operation| {
            // SAFETY: as the caller promises.
            unsafe { group.communicator.start(*operation) }
        };
        Ok(self.operations.iter().map(start).collect::<Result<_, _>>()?)
    }

    /// Brings a staged result to the client.
    ///
    /// # Safety
    /// The operations are over, and the client's buffers still ours.
    pub(crate) unsafe fn land(&self) {
        if let Some(landing) = self.landing {
            // SAFETY: the code that set `landing` has checked that the client has room for all that is staged; the
            // vector's memory is its own.
            unsafe { ptr::copy_nonoverlapping(self.staged.as_ptr(), landing, self.staged.len()) };
        }
    }
}
