//! What a benchmark's process does: a barrier, an operation that it times, and so on.

use tributary_algorithms::Collective;
use tributary_protocol::endpoint::OperationSpec;
use tributary_wire::frame::Target;
use tributary_wire::{Datatype, Operator};

use crate::engine::Picos;

/// One process's operations.
#[derive(Clone, Debug)]
pub(super) struct Routine {
    operations_left: u32,
    elements: u64,
    timed: Collective,
    is_timed: bool,
    began_at: Picos,
}

impl Routine {
    /// `operations` allreduces of `elements` 32-bit elements, each behind a barrier.
    pub(super) fn new(operations: u32, elements: u64) -> Self {
        Self {
            operations_left: operations,
            elements,
            timed: Collective::Allreduce,
            is_timed: true,
            began_at: Picos::ZERO,
        }
    }

    /// `operations` barriers, one right behind the other.
    pub(super) fn barriers(operations: u32) -> Self {
        Self { timed: Collective::Barrier, ..Self::new(operations, 0) }
    }

    /// Starts the next collective, if there is one.
    pub(super) fn next(&mut self, now: Picos) -> Option<Collective> {
        if self.is_timed && self.operations_left == 0 {
            return None;
        }
        self.is_timed = !self.is_timed || self.timed == Collective::Barrier;
        self.began_at = now;
        Some(if self.is_timed { self.timed } else { Collective::Barrier })
    }

    /// The collective is over; what it took, if it is timed.
    pub(super) fn finish(&mut self, now: Picos) -> Option<Picos> {
        if !self.is_timed {
            return None;
        }
        self.operations_left -= 1;
        Some(now.since(self.began_at))
    }

    /// Elements of a collective's vector.
    pub(super) fn elements(&self, collective: Collective) -> u64 {
        if collective == Collective::Barrier { 0 } else { self.elements }
    }

    /// The collective as the endpoint takes it.
    pub(super) fn spec(&self, collective: Collective) -> OperationSpec {
        if collective == Collective::Barrier {
            return OperationSpec::BARRIER;
        }
        OperationSpec {
            operator: Operator::Sum,
            datatype: Datatype::F32,
            elements: self.elements,
            target: Target::All,
            contributes: true,
            receives: true,
        }
    }
}
