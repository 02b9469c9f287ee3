//! What this host called, and whether others called the same.
//!
//! Hosts number their operations, and every frame tells what its sender called under its number, with a digest of all that
//! it called before. Frames that arrive for an operation are compared anyhow. The others are compared here, while a host
//! waits: those of operations that are over or whose schedule has no use for them, and the questions of hosts that wait for
//! this one ([`question`](tributary_waits::question)).

use arrayvec::ArrayVec;
use tributary_wire::OperationNumber;
use tributary_wire::frame::{Called, Part, Waiting};

use crate::operation::InterHostOperation;

/// Operations that are remembered. A host that only sends runs ahead of others by as many as links hold.
const KEPT_MAX: usize = 128;

/// What a host called under one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: OperationNumber,
    pub(crate) called: Called,
    /// Of this operation and all before it.
    pub(crate) digest: u32,
}

/// The calls of this host.
#[derive(Default)]
pub(crate) struct Calls {
    history: u64,
    /// The number of the next.
    next: u32,
    /// What it called last, and the digests; each at its number, modulo how many there is room for. Without the number: a
    /// leader comes to a line of this that its core has forgotten as seldom as can be.
    kept: ArrayVec<(Called, u32), KEPT_MAX>,
}

/// What comes of comparing another host's call with this host's of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Same,
    /// This host called something else.
    Differs(Call),
    /// This host has yet to come to it.
    Ahead,
    /// It is too long ago.
    Forgotten,
}

impl Call {
    /// What the sender of a frame called.
    pub(crate) fn told_by(part: &Part) -> Self {
        let called = Called {
            collective: part.retransmit.attempt,
            operator: part.shape.operator(),
            datatype: part.shape.datatype(),
        };
        let digest = part.target.member().map_or(0, |member| member.0);
        Self { number: part.operation, called, digest }
    }

    /// The question of a host that waits in this call.
    pub(crate) fn question(self) -> Waiting {
        Waiting { operation: self.number, called: self.called, digest: self.digest }
    }

    fn is_same(&self, other: &Self) -> bool {
        let collective = self.called.collective == other.called.collective;
        collective && (self.number, self.digest) == (other.number, other.digest)
    }
}

impl From<Waiting> for Call {
    fn from(Waiting { operation, called, digest }: Waiting) -> Self {
        Self { number: operation, called, digest }
    }
}

impl Calls {
    /// Notes that this host begins an operation.
    pub(crate) fn begin(&mut self, operation: &InterHostOperation) -> Call {
        let &InterHostOperation { operator, datatype, .. } = operation;
        let called = Called { collective: operation.called as u8, operator, datatype };
        self.history = operation.digest_after(self.history);
        let digest = (self.history >> 32) as u32;
        let call = Call { number: OperationNumber(self.next), called, digest };
        let place = self.next as usize % KEPT_MAX;
        match self.kept.get_mut(place) {
            Some(oldest) => *oldest = (called, digest),
            None => self.kept.push((called, digest)),
        }
        self.next = self.next.wrapping_add(1);
        call
    }

    /// The call that was begun last, if there is one.
    pub(crate) fn last(&self) -> Option<Call> {
        self.before_last(0)
    }

    /// The call that was begun so many before the last one, if it is remembered.
    fn before_last(&self, calls: u32) -> Option<Call> {
        let number = self.next.wrapping_sub(1).wrapping_sub(calls);
        let is_kept = (calls as usize) < self.kept.len();
        let (called, digest) = *self.kept.get(number as usize % KEPT_MAX).filter(|_| is_kept)?;
        Some(Call { number: OperationNumber(number), called, digest })
    }

    /// Compares what another host called.
    pub(crate) fn compare(&self, theirs: Call) -> Comparison {
        let Some(last) = self.last() else { return Comparison::Ahead };
        // Numbers wrap, and hosts are never apart by half of them.
        let behind = last.number.0.wrapping_sub(theirs.number.0);
        if (behind as i32) < 0 {
            return Comparison::Ahead;
        }
        match self.before_last(behind) {
            None => Comparison::Forgotten,
            Some(own) if own.is_same(&theirs) => Comparison::Same,
            Some(own) => Comparison::Differs(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::{Collective, CollectiveKind};
    use tributary_wire::{Datatype, Operator};

    use super::*;

    fn reduce(root: u32) -> InterHostOperation {
        InterHostOperation {
            collective: Collective::Reduce { root },
            operator: Operator::Sum,
            datatype: Datatype::I32,
            element_bytes: 4,
            elements: 3,
            ..InterHostOperation::BARRIER
        }
    }

    #[test]
    fn calls_are_compared_by_number_and_by_all_that_came_before() {
        let [mut one, mut other] = [Calls::default(), Calls::default()];
        assert_eq!(one.compare(other.begin(&reduce(0))), Comparison::Ahead);
        let first = one.begin(&reduce(0));
        assert_eq!(other.compare(first), Comparison::Same);
        let [its, others] = [one.begin(&reduce(1)), other.begin(&reduce(2))];
        assert_eq!(other.compare(its), Comparison::Differs(others));
        // What they call next is the same.
        let [its, others] = [&mut one, &mut other].map(|it| it.begin(&InterHostOperation::BARRIER));
        assert_eq!(other.compare(its), Comparison::Differs(others));
        for _ in 0..KEPT_MAX {
            let _ = other.begin(&InterHostOperation::BARRIER);
        }
        assert_eq!(other.compare(its), Comparison::Forgotten);
    }

    #[test]
    fn whatever_hosts_must_call_alike_changes_the_digest() {
        let changes: [fn(&mut InterHostOperation); 9] = [
            |_| {},
            |it| it.called = CollectiveKind::Scan,
            |it| it.collective = Collective::Allreduce,
            |it| it.collective = Collective::Reduce { root: 1 },
            |it| it.root_called = 1,
            |it| it.operator = Operator::Max,
            |it| it.datatype = Datatype::U32,
            |it| it.elements = 4,
            |it| it.element_bytes = 8,
        ];
        let digests: std::collections::BTreeSet<u32> = changes
            .iter()
            .map(|change| {
                let mut operation = reduce(0);
                change(&mut operation);
                Calls::default().begin(&operation).digest
            })
            .collect();
        assert_eq!(digests.len(), changes.len());
    }
}
