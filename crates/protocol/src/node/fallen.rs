//! What is remembered of groups that failed before all their children had come.
//!
//! Without it a child that comes late would find nobody, and would have to take that for its
//! parent's death. Bounded: one memory per group number, until the number is used again.

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, Header, Message};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId};

use super::group::Group;
use super::port::{PortId, Role};
use super::{FrameError, Node};

/// A failed group, as those of its children may know it that had not joined.
#[derive(Debug)]
pub(super) struct Fallen {
    epoch: Epoch,
    abort: Abort,
    awaited: Box<[(ChildIndex, Capability)]>,
}

impl Node {
    /// Remembers why a group failed, for its children that are still to come.
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
        if self.fallen.len() <= index {
            self.fallen.resize_with(index + 1, || None);
        }
        self.fallen[index] = Some(Box::new(Fallen { epoch: group.epoch, abort, awaited }));
    }

    /// The number is used again.
    pub(super) fn forget_fallen(&mut self, group: GroupId) {
        if let Some(place) = self.fallen.get_mut(group.0 as usize) {
            *place = None;
        }
    }

    /// A child comes for a group that is not there. If it was granted a place, it is told why.
    pub(super) fn turn_away(&mut self, port: PortId, header: &Header) -> Result<(), FrameError> {
        let edge = header.edge;
        let unknown = FrameError::UnknownGroup { group: edge.group, epoch: edge.epoch };
        let fallen = self.fallen.get(edge.group.0 as usize).and_then(Option::as_ref);
        let fallen = fallen.filter(|fallen| fallen.epoch == edge.epoch).ok_or(unknown)?;
        if !fallen.awaited.contains(&(edge.child, edge.capability)) {
            return Err(unknown);
        }
        let word = Header { edge, message: Message::Abort(fallen.abort) };
        self.bind(port, Role::Closing, 0);
        self.retire(port, Some(word));
        Ok(())
    }
}
