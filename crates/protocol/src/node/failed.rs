//! Groups that failed before all their children had joined.
//!
//! A child that joins late is told why its group failed. Otherwise it would have to conclude that
//! its parent died. Records outlive the group's number, which may be in use again by then.

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, Header, Message};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId};

use super::group::Group;
use super::port::{PortId, Role};
use super::{FrameError, Node};

/// Records that are kept: those of the newest failures.
const RECORDS_MAX: usize = 1024;

/// A failed group, as its children that had not joined may know it.
#[derive(Debug)]
pub(super) struct FailedGroup {
    group: GroupId,
    epoch: Epoch,
    abort: Abort,
    awaited: Box<[(ChildIndex, Capability)]>,
}

impl Node {
    /// Records why a group failed, for its children that have not joined.
    pub(super) fn remember(&mut self, group: &Group, abort: Abort) {
        let awaited: Box<[_]> = group
            .children
            .iter()
            .zip(0..)
            .filter(|(child, _)| !child.has_joined)
            .map(|(child, index)| (ChildIndex(index), child.capability))
            .collect();
        if awaited.is_empty() {
            return;
        }
        if self.failed.len() == RECORDS_MAX {
            self.failed.pop_front();
        }
        self.failed.push_back(FailedGroup { group: group.id, epoch: group.epoch, abort, awaited });
    }

    /// A child joins a group that is not there. If it was granted a place, it is told why.
    pub(super) fn handle_late_join(
        &mut self,
        port: PortId,
        header: &Header,
    ) -> Result<(), FrameError> {
        let edge = header.edge;
        let unknown = FrameError::UnknownGroup { group: edge.group, epoch: edge.epoch };
        let is_it = |it: &&FailedGroup| (it.group, it.epoch) == (edge.group, edge.epoch);
        let failed = self.failed.iter().rev().find(is_it).ok_or(unknown)?;
        if !failed.awaited.contains(&(edge.child, edge.capability)) {
            return Err(unknown);
        }
        let message = Header { edge, message: Message::Abort(failed.abort) };
        self.outputs.bind(port, Role::Closing, 0);
        self.outputs.retire(port, Some(message));
        Ok(())
    }
}
