//! How a group's parent is joined, how its children join and leave, and how all are told of its end.

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, AbortReason, EXTERNAL_RECEIVER, Header, Message};
use tributary_wire::{Capability, ChildIndex};

use super::external_receiver::ExternalReceiver;
use super::slot::Phase;
use super::{Consequence, Group, GroupError};
use crate::node::FrameError;
use crate::node::outputs::{Event, Outputs};
use crate::node::planted_hooks;
use crate::node::port::{PortId, Role};

impl Group {
    /// Joins the parent, if there is one.
    pub(in crate::node) fn join_parent(&self, out: &mut Outputs) {
        if let Some((port, header)) = self.header_to_parent(Message::Join) {
            out.bind(port, Role::Parent { group: self.id }, self.outbox_frames());
            let is_queued = out.transmit(port, header, None);
            debug_assert!(is_queued, "a port just bound has room");
        }
    }

    /// Takes a child's join. True if all have joined with it.
    pub(in crate::node) fn handle_join(
        &mut self,
        out: &mut Outputs,
        port: PortId,
        header: &Header,
    ) -> Result<bool, FrameError> {
        let edge = header.edge;
        if usize::from(edge.child.0) >= self.children.len() {
            // The same error as for a wrong capability, so that a stranger learns nothing about the
            // group.
            return Err(FrameError::Forged { group: self.id });
        }
        self.check_edge(header, edge.child)?;
        let child = self.child_mut(edge.child);
        if child.has_joined {
            return Err(FrameError::AlreadyJoined { group: edge.group, child: edge.child.0 });
        }
        child.port = Some(port);
        child.has_joined = true;
        let is_formed = self.children.iter().all(|child| child.has_joined);
        if is_formed {
            self.join_by = None;
            out.report(Event::Formed { group: self.id, epoch: self.epoch });
        }
        let reply = self.header_to_child(edge.child, Message::Joined);
        let role = Role::Child { group: self.id, child: edge.child };
        out.bind(port, role, self.outbox_frames());
        let is_queued = out.transmit(port, reply, None);
        debug_assert!(is_queued, "a port just bound has room");
        Ok(is_formed)
    }

    /// What the children show that have not joined.
    pub(in crate::node) fn absent_children(&self) -> Box<[(ChildIndex, Capability)]> {
        let children = self.children.iter().zip(0..).filter(|(child, _)| !child.has_joined);
        children.map(|(child, index)| (ChildIndex(index), child.capability)).collect()
    }

    /// The group's end if its children do not join in time.
    pub(in crate::node) fn join_timeout(&self) -> Abort {
        let absent = self.children.iter().find(|child| !child.has_joined);
        absent.expect("a formed group has no join timer").abort(AbortReason::JoinTimeout)
    }

    /// A child leaves in good order.
    pub(super) fn handle_leave(
        &mut self,
        out: &mut Outputs,
        child: ChildIndex,
    ) -> Result<Consequence, GroupError> {
        let entry = self.child_mut(child);
        if entry.has_left {
            return Ok(Consequence::None);
        }
        entry.has_left = true;
        // The child lacks nothing, so what is queued for it is dropped.
        if let Some(port) = entry.port {
            out.outbox_mut(port).clear();
        }
        self.left_count += 1;
        // A child that leaves during an operation leaves the others waiting for it.
        let is_awaited = self
            .slots
            .iter()
            .any(|slot| slot.phase == Phase::Gathering && !slot.arrived.has(child))
            || self.stream.as_ref().is_some_and(|stream| stream.awaits(child));
        if is_awaited {
            Err(self.child(child).abort(AbortReason::MemberLost).into())
        } else if self.has_everybody_left() {
            Ok(self.pass_on_leave(out))
        } else {
            Ok(Consequence::None)
        }
    }

    /// Whether all children have left.
    fn has_everybody_left(&self) -> bool {
        usize::from(self.left_count) == self.children.len()
    }

    /// All below have left. Members of other aggregators may not have: until the parent says so, a child that has left may
    /// be needed, should the tree be lost.
    fn pass_on_leave(&mut self, out: &mut Outputs) -> Consequence {
        let to_parent = self.header_to_parent(Message::Leave);
        let Some((port, header)) = to_parent else { return Consequence::GroupEnds };
        // Members that had a result by multicast have left before it came here. Nobody below awaits it any more.
        self.upward.clear();
        out.outbox_mut(port).drop_data();
        let is_queued = out.transmit(port, header, None);
        debug_assert!(is_queued, "the port has room for a few frames besides requests");
        if planted_hooks::takes_part_for_whole() {
            return Consequence::GroupEnds;
        }
        Consequence::None
    }

    /// The parent says that all members have left.
    pub(super) fn handle_leave_down(&self) -> Result<Consequence, GroupError> {
        if self.has_everybody_left() {
            Ok(Consequence::GroupEnds)
        } else {
            Err(FrameError::WrongDirection.into())
        }
    }

    /// Whether a child is an aggregation node.
    pub(in crate::node) fn is_node(&self, child: ChildIndex) -> bool {
        self.child(child).is_node
    }

    /// A child's link is gone. The group fails, unless the child had left.
    pub(in crate::node) fn handle_child_closed(
        &mut self,
        child: ChildIndex,
        reason: AbortReason,
    ) -> Result<(), Abort> {
        let entry = self.child_mut(child);
        entry.port = None;
        // A child that has left may close its link while its siblings still run operations.
        if entry.has_left { Ok(()) } else { Err(entry.abort(reason)) }
    }

    /// The parent's link is gone: the group fails.
    pub(in crate::node) fn handle_parent_closed(
        &mut self,
        out: &mut Outputs,
        reason: AbortReason,
    ) -> Abort {
        self.parent = None;
        planted_hooks::forget_children(self.children.iter_mut().map(|child| &mut child.port), out);
        self.abort(reason)
    }

    /// The external receiver's link is gone.
    pub(in crate::node) fn handle_external_receiver_closed(&mut self) {
        if let Some(external_receiver) = &mut self.external_receiver {
            external_receiver.on_closed();
        }
    }

    /// Lets a process that shows `capability` read the results.
    pub(in crate::node) fn admit_external_receiver(&mut self, capability: Capability) {
        let edge = self.edge(EXTERNAL_RECEIVER, capability);
        self.external_receiver = Some(ExternalReceiver::new(edge, self.first_member()));
    }

    /// Takes a join as the external receiver.
    pub(in crate::node) fn handle_external_receiver_join(
        &mut self,
        out: &mut Outputs,
        port: PortId,
        header: &Header,
    ) -> Result<(), FrameError> {
        let frames = self.outbox_frames();
        let forged = FrameError::Forged { group: self.id };
        self.external_receiver.as_mut().ok_or(forged)?.handle_join(out, port, header, frames)
    }

    /// Takes a frame from the external receiver, which may only leave.
    pub(in crate::node) fn handle_external_receiver_message(
        &mut self,
        out: &mut Outputs,
        header: &Header,
    ) -> Result<(), FrameError> {
        let external_receiver = self.external_receiver.as_mut();
        external_receiver.ok_or(FrameError::WrongDirection)?.handle_message(out, header)
    }

    /// Tells everyone around it that it has failed.
    pub(in crate::node) fn announce_failure(&self, out: &mut Outputs, abort: Abort) {
        if let Some(external_receiver) = &self.external_receiver {
            external_receiver.announce_end(out, Some(abort));
        }
        let message = Message::Abort(abort);
        self.retire_children(out, message);
        if let Some((port, last_message)) = self.header_to_parent(message) {
            out.retire(port, Some(last_message));
        }
    }

    /// Tells everyone around it that it has ended in good order.
    pub(in crate::node) fn announce_end(&self, out: &mut Outputs) {
        if let Some(external_receiver) = &self.external_receiver {
            external_receiver.announce_end(out, None);
        }
        self.retire_children(out, Message::Leave);
        // The parent was told when all below had left.
        if let Some(parent) = &self.parent {
            out.retire(parent.port, None);
        }
    }

    /// Says `message` to the children that are still there, and closes their links.
    fn retire_children(&self, out: &mut Outputs, message: Message) {
        for (child, index) in self.children.iter().zip(0..) {
            if let Some(port) = child.port {
                let last_message = self.header_to_child(ChildIndex(index), message);
                out.retire(port, Some(last_message));
            }
        }
    }
}
