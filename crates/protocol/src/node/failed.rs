//! Groups that failed before all their children had joined.
//!
//! A child that joins late is told why its group failed. Otherwise it would have to conclude that
//! its parent died. One record per group number is kept, until the number is used again.

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, Header, Message};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId};

use super::group::Group;
use super::port::{PortId, Role};
use super::{FrameError, Node};

/// A failed group, as its children that had not joined may know it.
#[derive(Debug)]
pub(super) struct FailedGroup {
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
        let index = group.id.0 as usize;
        if self.failed.len() <= index {
            self.failed.resize_with(index + 1, || None);
        }
        self.failed[index] = Some(Box::new(FailedGroup { epoch: group.epoch, abort, awaited }));
    }

    /// The number is used again.
    pub(super) fn forget_failed(&mut self, group: GroupId) {
        if let Some(place) = self.failed.get_mut(group.0 as usize) {
            *place = None;
        }
    }

    /// A child joins a group that is not there. If it was granted a place, it is told why.
    pub(super) fn handle_late_join(
        &mut self,
        port: PortId,
        header: &Header,
    ) -> Result<(), FrameError> {
        let edge = header.edge;
        let unknown = FrameError::UnknownGroup { group: edge.group, epoch: edge.epoch };
        let failed = self.failed.get(edge.group.0 as usize).and_then(Option::as_ref);
        let failed = failed.filter(|failed| failed.epoch == edge.epoch).ok_or(unknown)?;
        if !failed.awaited.contains(&(edge.child, edge.capability)) {
            return Err(unknown);
        }
        let message = Header { edge, message: Message::Abort(failed.abort) };
        self.bind(port, Role::Closing, 0);
        self.retire(port, Some(message));
        Ok(())
    }
}
