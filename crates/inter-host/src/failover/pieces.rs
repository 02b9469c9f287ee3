//! Pieces of an operation's vector as operations over direct links.
//!
//! An operation that began in a tree goes on as the tree would have carried it: a barrier, a broadcast, a
//! reduction to one host, or one whose result all hosts get.

use std::ops::Range;

use tributary_algorithms::{Algorithm, Collective, CollectiveKind, Order};
use tributary_shm_collectives::Blocks;
use tributary_wire::{Datatype, Operator};

use crate::kernels::kernel;
use crate::operation::InterHostOperation;

/// Up to this length few rounds count, beyond it bytes.
const SHORT_BYTES_MAX: usize = 8 << 10;

/// A vector that an operation combines or spreads piece by piece.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) source: *const u8,
    pub(super) target: *mut u8,
    pub(super) len_bytes: usize,
}

impl Piece {
    /// A part of an operation's own buffers.
    pub(super) fn of(operation: &InterHostOperation, bytes: &Range<usize>) -> Self {
        // Pointers that are not used here may be null, and stay what they are.
        let behind = |start: *mut u8| match start.is_null() {
            true => start,
            false => start.wrapping_add(bytes.start),
        };
        Self {
            source: behind(operation.source.cast_mut()).cast_const(),
            target: behind(operation.target),
            len_bytes: bytes.len(),
        }
    }

    /// Memory of ours that holds this host's contribution, or will hold the result.
    pub(super) fn within(memory: &mut [u8]) -> Self {
        let target = memory.as_mut_ptr();
        Self { source: target.cast_const(), target, len_bytes: memory.len() }
    }
}

/// The operation over links that does for `piece` what `whole` does for the vector.
pub(super) fn operation_of(whole: &InterHostOperation, piece: Piece) -> InterHostOperation {
    let Piece { source, target, len_bytes } = piece;
    let collective = match whole.collective {
        Collective::Barrier | Collective::Broadcast { .. } | Collective::Reduce { .. } => {
            whole.collective
        }
        _ => Collective::Allreduce,
    };
    let algorithm = match collective {
        Collective::Broadcast { .. } | Collective::Reduce { .. } => Algorithm::Binomial,
        Collective::Barrier => Algorithm::Dissemination,
        _ if len_bytes <= SHORT_BYTES_MAX => Algorithm::RecursiveDoubling,
        _ => Algorithm::Rabenseifner,
    };
    InterHostOperation {
        collective,
        elements: (len_bytes / whole.element_bytes) as u64,
        order: Order::Any,
        parts: Blocks::Even,
        kernel: kernel(whole.operator, whole.datatype),
        algorithm,
        source,
        target,
        ..*whole
    }
}

/// One host gives bytes to all others.
pub(super) fn broadcast(from: u32, memory: &mut [u8], algorithm: Algorithm) -> InterHostOperation {
    InterHostOperation {
        collective: Collective::Broadcast { root: from },
        called: CollectiveKind::Broadcast,
        operator: Operator::Broadcast,
        algorithm,
        ..bytes(memory)
    }
}

/// Every host's bits come together, through host 0.
pub(super) fn gather_bits(memory: &mut [u8]) -> InterHostOperation {
    InterHostOperation {
        collective: Collective::Allreduce,
        called: CollectiveKind::Allreduce,
        operator: Operator::BitOr,
        kernel: kernel(Operator::BitOr, Datatype::U8),
        algorithm: Algorithm::Linear,
        ..bytes(memory)
    }
}

fn bytes(memory: &mut [u8]) -> InterHostOperation {
    let Piece { source, target, len_bytes } = Piece::within(memory);
    let elements = len_bytes as u64;
    InterHostOperation {
        datatype: Datatype::U8,
        elements,
        source,
        target,
        ..InterHostOperation::BARRIER
    }
}
