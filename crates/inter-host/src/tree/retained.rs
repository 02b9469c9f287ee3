//! What a member keeps of the operation that it completed last, for members that lack it when the tree
//! is lost.
//!
//! The program may change its vectors as soon as an operation is over here, while another member still
//! waits for the result. Only the last window of segments can be missing anywhere
//! ([`Cut::tail`](tributary_protocol::failover::Cut::tail)), so only those are copied.

use tributary_algorithms::Collective;
use tributary_protocol::failover::Cut;
use tributary_wire::OperationNumber;

use super::running::Running;
use crate::operation::InterHostOperation;

/// The tail of the operation completed last.
pub(crate) struct Retained {
    number: Option<OperationNumber>,
    /// What it was. Its buffers are not its own any more.
    operation: InterHostOperation,
    cut: Cut,
    /// The result's bytes, or in a reduction to another member the contribution's.
    bytes: Vec<u8>,
}

/// What is kept of one operation.
pub(crate) struct Tail<'a> {
    pub(crate) operation: &'a InterHostOperation,
    pub(crate) cut: Cut,
    /// The bytes of `cut.tail()`; none at the root of a reduction, whose result nobody else gets.
    pub(crate) bytes: &'a [u8],
}

impl Retained {
    pub(super) fn new() -> Self {
        Self {
            number: None,
            operation: InterHostOperation::BARRIER,
            cut: Cut { segment_bytes: 0, segments: 0, len_bytes: 0, window: 0 },
            bytes: Vec::new(),
        }
    }

    /// Keeps what others may lack of an operation whose buffers are still its own.
    pub(super) fn keep(&mut self, number: OperationNumber, running: &Running, cut: Cut) {
        let operation = &running.operation;
        (self.number, self.cut) = (Some(number), cut);
        self.operation = *operation;
        self.bytes.clear();
        let kept = match operation.collective {
            Collective::Barrier => return,
            Collective::Reduce { .. } if running.spec.receives => return,
            Collective::Reduce { .. } => operation.source,
            _ if running.spec.receives => operation.target.cast_const(),
            _ => operation.source,
        };
        let tail = cut.bytes(&cut.tail());
        // SAFETY: the tail lies within the piece that has just been completed, and the buffers are the
        // operation's until the engine learns that it is over. Nothing writes there any more.
        let tail = unsafe {
            std::slice::from_raw_parts(kept.add(running.piece.start + tail.start), tail.len())
        };
        self.bytes.extend_from_slice(tail);
    }

    /// What is kept of operation `number`; none if that was not the last one.
    pub(crate) fn tail(&self, number: OperationNumber) -> Option<Tail<'_>> {
        let Self { operation, cut, bytes, .. } = self;
        (self.number == Some(number)).then_some(Tail { operation, cut: *cut, bytes })
    }
}
