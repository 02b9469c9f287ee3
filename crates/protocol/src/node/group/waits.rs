//! Which children a group waits for.
//!
//! Nothing is kept for this: it is read off the slots on request, and the data path pays nothing. A caller that
//! compares two answers learns how long a wait lasts.

use alloc::vec::Vec;

use tributary_wire::{ChildIndex, Epoch, GroupId, OperationNumber};

use super::Group;
use super::slot::{Phase, Slot};
use super::stream::PendingStage;

/// What a group waits for at an aggregator: the oldest thing that holds it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// What for. Equal as long as it is the same wait.
    pub for_what: WaitsFor,
    /// Children whose part has not come; none of them if all have, and the parent is waited for.
    pub missing: Vec<ChildIndex>,
}

/// What a group's children have yet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// That they join.
    Members,
    /// Their part in an operation.
    Operation {
        /// The operation.
        operation: OperationNumber,
        /// The number of the part of its vector.
        part: u32,
    },
}

impl Wait {
    /// Whether it is for an earlier part than another wait of the group.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        match (self.for_what, other.for_what) {
            (WaitsFor::Operation { part: own, .. }, WaitsFor::Operation { part: others, .. }) => {
                (1..1 << 31).contains(&others.wrapping_sub(own))
            }
            (WaitsFor::Members, WaitsFor::Operation { .. }) => true,
            (_, WaitsFor::Members) => false,
        }
    }
}

impl Group {
    /// The oldest thing that it waits for.
    pub(in crate::node) fn wait(&self) -> Option<Wait> {
        let (for_what, missing) = self
            .wait_for_members()
            .or_else(|| self.wait_of(self.slots.oldest_open()?))
            .or_else(|| self.wait_for_stream())?;
        Some(Wait { group: self.id, epoch: self.epoch, for_what, missing })
    }

    fn wait_for_members(&self) -> Option<(WaitsFor, Vec<ChildIndex>)> {
        self.join_by?;
        let missing = self.children_that(|at| !self.children[usize::from(at.0)].has_joined);
        Some((WaitsFor::Members, missing))
    }

    fn wait_for_stream(&self) -> Option<(WaitsFor, Vec<ChildIndex>)> {
        let stream = self.stream.as_ref()?;
        if let Some(slots) = stream.slots() {
            return self.wait_of(slots.oldest_open()?);
        }
        let (request, stage) = stream.pending()?;
        let operation = request.operation;
        let missing = match stage {
            PendingStage::Gathering => self.children_that(|child| !stream.has_requested(child)),
            PendingStage::Forwarded => Vec::new(),
            PendingStage::Queued => return None,
        };
        Some((WaitsFor::Operation { operation, part: 0 }, missing))
    }

    /// What a slot waits for; none if it has its result.
    fn wait_of(&self, slot: &Slot) -> Option<(WaitsFor, Vec<ChildIndex>)> {
        let part = slot.part?;
        let missing = match slot.phase {
            Phase::Done => return None,
            Phase::Forwarded => Vec::new(),
            Phase::Gathering => self.children_that(|child| !slot.arrived.has(child)),
        };
        Some((WaitsFor::Operation { operation: part.operation, part: part.sequence.0 }, missing))
    }

    fn children_that(&self, is_meant: impl Fn(ChildIndex) -> bool) -> Vec<ChildIndex> {
        (0..self.children.len() as u16).map(ChildIndex).filter(|child| is_meant(*child)).collect()
    }
}
