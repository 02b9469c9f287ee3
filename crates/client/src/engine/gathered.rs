//! Reductions with an operator of the caller's, where the engine cannot call it: all vectors are gathered, and
//! each rank that gets a result combines them itself.
//!
//! The engine then only moves bytes, so any thread may drive it, by any method; the operator is called by the
//! thread that asks for the outcome. The order is that of the ranks, wherever they are. Everybody gets all
//! vectors, so this is for short ones.

use tributary_algorithms::Collective;
use tributary_wire::{Datatype, Operator};

use super::local::{block_of, prefix};
use crate::combiner::Combiner;
use crate::operation::{Blocks, Operation};

/// One reduction, at one rank.
pub(crate) struct Gathered {
    /// What the engine does: an allgather into `_vectors`.
    operation: Operation,
    combiner: Combiner,
    /// The vectors in rank order, each as long as a contribution. These words are aligned as `malloc` aligns.
    _vectors: Vec<u128>,
    result: Wanted,
    target: *mut u8,
}

/// What of the vectors this rank's result comes from.
#[derive(Clone, Copy)]
struct Wanted {
    /// The vectors of the ranks below it; 0 if this rank gets no result.
    count: u32,
    /// Where the result's part begins in each vector.
    offset_bytes: usize,
    len_bytes: usize,
}

// SAFETY: the pointers are followed under the contract of `Communicator::start`, whose caller promises that
// buffers and combiner may be used from any thread until the operation is over.
unsafe impl Send for Gathered {}
// SAFETY: as above; `combine` alone follows them, and its callers take turns.
unsafe impl Sync for Gathered {}

/// A reduction as the allgather that brings its vectors to `target`.
pub(super) fn as_allgather(operation: &Operation, target: *mut u8) -> Operation {
    Operation {
        collective: Collective::Allgather,
        datatype: Datatype::U8,
        operator: Operator::Broadcast,
        combiner: None,
        elements: operation.len_bytes() as u64,
        blocks: Blocks::Even,
        source: operation.source,
        target,
    }
}

impl Gathered {
    /// A reduction on `ranks` ranks, at `rank`.
    ///
    /// # Safety
    /// The blocks of a reduce-scatter are as their type says.
    pub(super) unsafe fn new(
        operation: &Operation,
        combiner: Combiner,
        rank: u32,
        ranks: u32,
    ) -> Self {
        let all_bytes = operation.len_bytes() * ranks as usize;
        let mut vectors = vec![0_u128; all_bytes.div_ceil(size_of::<u128>())];
        Self {
            operation: as_allgather(operation, vectors.as_mut_ptr().cast()),
            combiner,
            _vectors: vectors,
            // SAFETY: by this function's contract.
            result: unsafe { Wanted::at(operation, rank, ranks) },
            target: operation.target,
        }
    }

    /// What the engine does for it.
    pub(crate) fn operation(&self) -> Operation {
        self.operation
    }

    /// Combines the vectors into this rank's result.
    ///
    /// # Safety
    /// The engine's part is over, and target and combiner are valid, as the caller of `Communicator::run` or
    /// `start` promised. No other thread is in here with the same operation.
    pub(crate) unsafe fn combine(&self) {
        let Wanted { count, offset_bytes, len_bytes } = self.result;
        if count == 0 || len_bytes == 0 {
            return;
        }
        let vector_bytes = self.operation.elements as usize;
        let vectors = self.operation.target.cast_const();
        // SAFETY: the combiner is valid, by this function's contract.
        let kernel = unsafe { self.combiner.kernel() };
        // SAFETY: `vectors` holds a vector of every rank, and the part is inside one. The target is the
        // program's memory, and so apart from them.
        unsafe {
            prefix(kernel, self.target, len_bytes, count, |rank| {
                vectors.add(rank as usize * vector_bytes + offset_bytes)
            });
        }
    }
}

impl Wanted {
    /// # Safety
    /// As [`Gathered::new`].
    unsafe fn at(operation: &Operation, rank: u32, ranks: u32) -> Self {
        let whole = 0..operation.elements;
        let (count, elements) = match operation.collective {
            Collective::Scan => (rank + 1, whole),
            Collective::Exscan => (rank, whole),
            Collective::Reduce { root } if root != rank => (0, whole),
            Collective::ReduceScatter => {
                // SAFETY: by this function's contract.
                (ranks, unsafe { block_of(operation.blocks, rank, ranks, operation.elements) })
            }
            _ => (ranks, whole),
        };
        let bytes = |elements: u64| elements as usize * operation.element_bytes();
        let (offset_bytes, end_bytes) = (bytes(elements.start), bytes(elements.end));
        Self { count, offset_bytes, len_bytes: end_bytes - offset_bytes }
    }
}
