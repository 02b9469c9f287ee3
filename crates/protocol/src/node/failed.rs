//! Groups that failed before all their children had joined.
//!
//! A child that joins late is told why its group failed. Otherwise it would have to conclude that
//! its parent died. Records outlive the group's number, which may be in use again by then.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use tributary_wire::frame::{Abort, Edge};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId};

use super::group::Group;

/// Records that are kept: those of the newest failures.
const RECORDS_MAX: usize = 1024;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct FailedGroups {
    /// Oldest first.
    records: VecDeque<FailedGroup>,
}

/// A failed group, as its children that had not joined may know it.
#[derive(Debug)]
struct FailedGroup {
    group: GroupId,
    epoch: Epoch,
    abort: Abort,
    absent: Box<[(ChildIndex, Capability)]>,
}

impl FailedGroups {
    /// Records why a group failed, for its children that have not joined.
    pub(super) fn record(&mut self, group: &Group, abort: Abort) {
        let absent = group.absent_children();
        if absent.is_empty() {
            return;
        }
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
        }
        let (group, epoch) = (group.id(), group.epoch());
        self.records.push_back(FailedGroup { group, epoch, abort, absent });
    }

    /// Why the group of an edge failed; none if it did not, or the edge is not that of an absent child.
    pub(super) fn abort_of(&self, edge: &Edge) -> Option<Abort> {
        let is_of_group = |it: &&FailedGroup| (it.group, it.epoch) == (edge.group, edge.epoch);
        let failed = self.records.iter().rev().find(is_of_group)?;
        failed.absent.contains(&(edge.child, edge.capability)).then_some(failed.abort)
    }
}
