//! The operation that a member carries, and its buffers.

use std::ops::Range;

use tributary_protocol::endpoint::OperationSpec;
use tributary_wire::frame::STREAM_BYTES_MAX;

use crate::operation::InterHostOperation;

/// The operation under way, and its buffers.
///
/// A vector longer than a stream may be goes as several, one after the other.
pub(crate) struct Running {
    pub(crate) operation: InterHostOperation,
    pub(crate) spec: OperationSpec,
    pub(crate) is_stream: bool,
    pub(crate) len_bytes: usize,
    /// Bytes of the vector that may be sent by now.
    pub(crate) ready_bytes: usize,
    /// The part of the vector that travels now.
    pub(crate) piece: Range<usize>,
}

impl Running {
    /// An operation of which the first bytes have travelled already, and all may be sent.
    pub(super) fn new(operation: &InterHostOperation, spec: OperationSpec, first: usize) -> Self {
        // A barrier has no vector.
        let len_bytes = spec.elements as usize * spec.datatype.size_bytes();
        Self {
            operation: *operation,
            spec,
            is_stream: false,
            len_bytes,
            ready_bytes: len_bytes,
            piece: first..first,
        }
    }

    /// Elements that travel next, from `first_byte` on.
    pub(super) fn elements_from(&self, first_byte: usize) -> u64 {
        let element_bytes = self.spec.datatype.size_bytes() as u64;
        let left = self.spec.elements - first_byte as u64 / element_bytes;
        if self.is_stream { left.min(STREAM_BYTES_MAX / element_bytes) } else { left }
    }

    /// Puts a result where it belongs.
    pub(crate) fn fill(&self, bytes: Range<usize>, payload: &[u8]) {
        assert!(bytes.end <= self.piece.len(), "the endpoint cuts its own vector");
        assert_eq!(bytes.len(), payload.len(), "headers state their payload");
        // SAFETY: the range lies within the target, checked above, which the caller of `start`
        // keeps valid while the operation runs; a frame never overlaps a user's buffer.
        unsafe {
            let target = self.operation.target.add(self.piece.start + bytes.start);
            target.copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
    }
}
