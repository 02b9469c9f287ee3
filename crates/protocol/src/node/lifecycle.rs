//! How groups are installed, joined, left and removed.

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, AbortReason, EXTERNAL_RECEIVER, Header, Message};
use tributary_wire::{ChildIndex, Epoch, GroupId, TreeId};

use super::config::{StreamConfig, StreamLimits};
use super::group::Group;
use super::port::{PortId, Role};
use super::slot::Phase;
use super::{Event, FrameError, GroupConfig, InstallError, Node};
use crate::payloads::Arena;
use crate::{StreamTerms, Time};

/// Most outstanding operations of a group: its slots are numbered in 16 bits.
const OSOS_MAX: u16 = 1 << 14;

impl Node {
    /// Takes part in a group: reserves its slots and joins the parent, if there is one. The driver
    /// allocates the arena before it delivers another frame.
    ///
    /// # Errors
    /// If the node lacks what the group needs; then nothing of it is kept.
    pub fn install(&mut self, now: Time, config: GroupConfig) -> Result<Arena, InstallError> {
        self.check_install(&config)?;
        let index = config.group.0 as usize;
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, || None);
        }
        let join_by = now.after_ns(self.config.join_timeout_ns);
        let group = Group::new(config, join_by, self.losses);
        let arena = group.arena();
        self.osos_used += u32::from(group.osos());
        self.forming += 1;
        if let Some((port, header)) = group.header_to_parent(Message::Join) {
            self.outputs.bind(port, Role::Parent { group: group.id }, group.outbox_frames());
            let is_queued = self.outputs.transmit(port, header, None);
            debug_assert!(is_queued, "a port just bound has room");
        }
        self.groups[index] = Some(Box::new(group));
        Ok(arena)
    }

    fn check_install(&self, config: &GroupConfig) -> Result<(), InstallError> {
        let limits = &self.config;
        if config.group.0 >= limits.groups_max {
            let groups_max = limits.groups_max;
            return Err(InstallError::GroupIdTooLarge { group: config.group, groups_max });
        }
        if let Some(Some(group)) = self.groups.get(config.group.0 as usize) {
            return Err(InstallError::GroupInUse { group: group.id, epoch: group.epoch });
        }
        if !limits.frame_versions.contains(config.frame_version) {
            let (needed, spoken) = (config.frame_version, limits.frame_versions);
            return Err(InstallError::OtherVersion { needed, spoken });
        }
        let is_empty = config.children.is_empty()
            || config.osos == 0
            || config.payload_max_bytes == 0
            || config.children.iter().any(|child| child.members.is_empty());
        if is_empty {
            return Err(InstallError::Empty);
        }
        if config.osos > OSOS_MAX {
            return Err(InstallError::TooManyOsos { needed: config.osos, max: OSOS_MAX });
        }
        if config.children.len() > usize::from(limits.radix_max) {
            let radix_max = limits.radix_max;
            return Err(InstallError::RadixExceeded { needed: config.children.len(), radix_max });
        }
        if config.payload_max_bytes > limits.payload_max_bytes {
            return Err(InstallError::PayloadTooLong {
                needed_bytes: config.payload_max_bytes,
                max_bytes: limits.payload_max_bytes,
            });
        }
        if let Some(stream) = &config.stream {
            check_stream(&limits.streams, stream)?;
        }
        let free = limits.osos_max - self.osos_used;
        if u32::from(config.osos) > free {
            let max = limits.osos_max;
            return Err(InstallError::OsosExhausted { needed: config.osos, free, max });
        }
        match &config.parent {
            Some(parent) if self.outputs.role(parent.port) != Role::Unbound => {
                Err(InstallError::PortInUse { port: parent.port })
            }
            _ => Ok(()),
        }
    }

    /// Drops a group on the manager's order, and tells its children and parent. Returns `false` if
    /// there is no such group: it may have failed or ended meanwhile.
    pub fn withdraw(&mut self, group: GroupId, epoch: Epoch) -> bool {
        let Some(Some(found)) = self.groups.get(group.0 as usize) else { return false };
        if found.epoch != epoch {
            return false;
        }
        let at_fault = found.first_member();
        self.fail(group, Abort { reason: AbortReason::Withdrawn, at_fault });
        true
    }

    pub(super) fn handle_join(&mut self, port: PortId, header: &Header) -> Result<(), FrameError> {
        let edge = header.edge;
        let group = self.groups.get_mut(edge.group.0 as usize).and_then(Option::as_mut);
        let Some(group) = group.filter(|group| group.epoch == edge.epoch) else {
            return self.handle_late_join(port, header);
        };
        if edge.child == EXTERNAL_RECEIVER {
            return self.handle_external_receiver_join(port, header);
        }
        if usize::from(edge.child.0) >= group.children.len() {
            // The same error as for a wrong capability, so that a stranger learns nothing about the
            // group.
            return Err(FrameError::Forged { group: edge.group });
        }
        group.check_edge(header, edge.child)?;
        let child = &mut group.children[usize::from(edge.child.0)];
        if child.has_joined {
            return Err(FrameError::AlreadyJoined { group: edge.group, child: edge.child.0 });
        }
        child.port = Some(port);
        child.has_joined = true;
        let reply = group.header_to_child(edge.child, Message::Joined);
        let frames = group.outbox_frames();
        let is_formed = group.children.iter().all(|child| child.has_joined);
        if is_formed {
            group.join_by = None;
            self.forming -= 1;
            self.outputs.report(Event::Formed { group: edge.group, epoch: edge.epoch });
        }
        self.outputs.bind(port, Role::Child { group: edge.group, child: edge.child }, frames);
        let is_queued = self.outputs.transmit(port, reply, None);
        debug_assert!(is_queued, "a port just bound has room");
        Ok(())
    }

    pub(super) fn handle_leave(
        &mut self,
        id: GroupId,
        child: ChildIndex,
    ) -> Result<(), FrameError> {
        let group = self.group_mut(id);
        let entry = &mut group.children[usize::from(child.0)];
        if entry.has_left {
            return Ok(());
        }
        entry.has_left = true;
        let (at_fault, port) = (entry.members.start, entry.port);
        group.left_count += 1;
        // A child that leaves during an operation leaves the others waiting for it.
        let is_awaited = group
            .slots
            .iter()
            .any(|slot| slot.phase == Phase::Gathering && !slot.arrived.has(child))
            || group.stream.as_ref().is_some_and(|stream| stream.awaits(child));
        let have_all_left = usize::from(group.left_count) == group.children.len();
        // The child reads nothing more, so what is queued for it is dropped.
        if let Some(port) = port {
            self.outputs.outbox_mut(port).clear();
        }
        if is_awaited {
            self.fail(id, Abort { reason: AbortReason::MemberLost, at_fault });
        } else if have_all_left {
            self.end(id);
        }
        Ok(())
    }

    /// A link is gone. Its number may be used again.
    pub fn handle_port_closed(&mut self, port: PortId) {
        let is_member = match self.outputs.role(port) {
            Role::Child { group, child } => {
                !self.group_mut(group).children[usize::from(child.0)].is_node
            }
            _ => false,
        };
        #[cfg(feature = "planted-bugs")]
        let is_member = is_member || self.is_called_member(port);
        let reason = if is_member { AbortReason::MemberLost } else { AbortReason::NodeLost };
        self.unbind(port, reason);
    }

    /// One of the bugs that the swarm has to find.
    #[cfg(feature = "planted-bugs")]
    fn is_called_member(&self, port: PortId) -> bool {
        use crate::planted::{Bug, is_planted};
        matches!(self.outputs.role(port), Role::Child { .. }) && is_planted(Bug::NodeCalledMember)
    }

    /// A link was closed on this side, because a frame from it was invalid or refused. Its number
    /// may be used again.
    pub fn handle_port_refused(&mut self, port: PortId) {
        self.unbind(port, AbortReason::Misbehaved);
    }

    /// Takes the port from its group, and fails the group for `reason` if it still needs the port.
    fn unbind(&mut self, port: PortId, reason: AbortReason) {
        let role = self.outputs.role(port);
        self.outputs.unbind(port);
        match role {
            Role::Unbound | Role::Closing => {}
            Role::ExternalReceiver { group } => {
                if let Some(external_receiver) = &mut self.group_mut(group).external_receiver {
                    external_receiver.port = None;
                }
            }
            Role::Parent { group } => {
                let at_fault = self.group_mut(group).first_member();
                self.group_mut(group).parent = None;
                #[cfg(feature = "planted-bugs")]
                self.forget_children(group);
                self.fail(group, Abort { reason, at_fault });
            }
            Role::Child { group, child } => {
                let entry = &mut self.group_mut(group).children[usize::from(child.0)];
                entry.port = None;
                // A child that has left may close its link while its siblings still run operations.
                if !entry.has_left {
                    let at_fault = entry.members.start;
                    self.fail(group, Abort { reason, at_fault });
                }
            }
        }
    }

    /// One of the bugs that the swarm has to find.
    #[cfg(feature = "planted-bugs")]
    fn forget_children(&mut self, id: GroupId) {
        use crate::planted::{Bug, is_planted};
        if !is_planted(Bug::SilentOrphan) {
            return;
        }
        for index in 0..self.group_mut(id).children.len() {
            if let Some(port) = self.group_mut(id).children[index].port.take() {
                self.outputs.set_role(port, Role::Closing);
            }
        }
    }

    /// When [`Node::handle_timeout`] is due; none without a timer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let repeat = self.next_repeat_at();
        if self.forming == 0 {
            return repeat;
        }
        let joins = self.groups.iter().flatten().filter_map(|group| group.join_by);
        joins.chain(repeat).min()
    }

    /// Repeats what is due upward, and fails every group whose children did not all join in time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.repeat_due(now);
        if self.forming == 0 {
            return;
        }
        for index in 0..self.groups.len() {
            let Some(group) = &self.groups[index] else { continue };
            if group.join_by.is_none_or(|join_by| now < join_by) {
                continue;
            }
            let absent = group.children.iter().find(|child| !child.has_joined);
            let at_fault = absent.expect("a formed group has no join timer").members.start;
            self.fail(group.id, Abort { reason: AbortReason::JoinTimeout, at_fault });
        }
    }

    /// Fails a group: tells everyone around it and frees what it used.
    pub(super) fn fail(&mut self, id: GroupId, abort: Abort) {
        if let Some(tree) = self.drop_group(id, abort) {
            self.serve_lock(tree);
        }
    }

    /// Fails a group. Returns the tree whose stream lock it may have had; the caller serves that
    /// lock.
    pub(super) fn drop_group(&mut self, id: GroupId, abort: Abort) -> Option<TreeId> {
        let tree = self.leave_lock(id);
        let group = self.remove(id);
        self.remember(&group, abort);
        self.tell_external_receiver(&group, Some(abort));
        let message = Message::Abort(abort);
        for (index, child) in group.children.iter().enumerate() {
            if let Some(port) = child.port {
                let last_message = group.header_to_child(ChildIndex(index as u16), message);
                self.outputs.retire(port, Some(last_message));
            }
        }
        if let Some((port, last_message)) = group.header_to_parent(message) {
            self.outputs.retire(port, Some(last_message));
        }
        self.outputs.stats.groups_failed += 1;
        self.losses += u64::from(abort.reason == AbortReason::NodeLost);
        self.outputs.report(Event::Failed { group: id, epoch: group.epoch, abort });
        self.outputs.report(Event::Released(group.arena().id));
        tree
    }

    /// Ends a group in good order.
    fn end(&mut self, id: GroupId) {
        let group = self.remove(id);
        self.tell_external_receiver(&group, None);
        for port in group.children.iter().filter_map(|child| child.port) {
            self.outputs.retire(port, None);
        }
        if let Some((port, last_message)) = group.header_to_parent(Message::Leave) {
            self.outputs.retire(port, Some(last_message));
        }
        self.outputs.stats.groups_ended += 1;
        self.outputs.report(Event::Ended { group: id, epoch: group.epoch });
        self.outputs.report(Event::Released(group.arena().id));
    }

    fn remove(&mut self, id: GroupId) -> Box<Group> {
        let group = self.groups[id.0 as usize].take().expect("only an installed group is removed");
        self.osos_used -= u32::from(group.osos());
        if group.join_by.is_some() {
            self.forming -= 1;
        }
        self.unanswered_groups -= u32::from(group.upward.is_waiting());
        group
    }

    pub(super) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups[id.0 as usize].as_mut().expect("a bound port's group is installed")
    }
}

fn check_stream(limits: &StreamLimits, grant: &StreamConfig) -> Result<(), InstallError> {
    if grant.tree.0 >= limits.trees {
        return Err(InstallError::TreeIdTooLarge { tree: grant.tree, trees: limits.trees });
    }
    let StreamLimits { window_max, chunk_bytes_max, .. } = *limits;
    let StreamTerms { window, chunk_bytes } = grant.terms;
    let fits = (1..=window_max).contains(&window) && (1..=chunk_bytes_max).contains(&chunk_bytes);
    if fits {
        Ok(())
    } else {
        Err(InstallError::StreamTooWide { window, chunk_bytes, window_max, chunk_bytes_max })
    }
}
