//! How groups are installed, joined, left and removed.

use alloc::boxed::Box;
use core::num::NonZeroU16;

use tributary_wire::frame::{AbortReason, EXTERNAL_RECEIVER, Header, Message};
use tributary_wire::{Capability, Epoch, GroupId};

use super::config::{GroupConfig, InstallError, StreamConfig, StreamLimits};
use super::error::FrameError;
use super::group::Group;
use super::outputs::Event;
use super::port::{PortId, Role};
use super::{Node, planted_hooks};
use crate::payloads::Arena;
use crate::{StreamTerms, Time};

/// Most outstanding operations of a group: its slots are numbered in 16 bits.
const OSOS_MAX: u16 = 1 << 14;

impl Node {
    /// Lets edges use datagrams. This aggregator takes them at the UDP port `port` of every address at
    /// which it takes links. Segments longer than `segment_max_bytes` go up over the link all the
    /// same. Results go down the way their requests came.
    pub fn take_datagrams(&mut self, port: NonZeroU16, segment_max_bytes: u32) {
        self.state.datagram_port = Some(port);
        self.datagram_segment_max_bytes = segment_max_bytes;
    }

    /// Takes part in a group: reserves its slots and joins the parent, if there is one. The driver
    /// allocates the arena before it delivers another frame.
    ///
    /// # Errors
    /// If the aggregator lacks what the group needs; then nothing of it is kept.
    pub fn install(&mut self, now: Time, config: GroupConfig) -> Result<Arena, InstallError> {
        self.check_install(&config)?;
        let join_by = now.after_ns(self.config.join_timeout_ns);
        let group = Group::new(config, join_by, self.state.losses);
        let arena = group.arena();
        self.osos_used += u32::from(group.osos());
        self.forming += 1;
        group.join_parent(&mut self.outputs);
        self.groups.insert(group);
        Ok(arena)
    }

    fn check_install(&self, config: &GroupConfig) -> Result<(), InstallError> {
        let limits = &self.config;
        if config.group.0 >= limits.groups_max {
            let groups_max = limits.groups_max;
            return Err(InstallError::GroupIdTooLarge { group: config.group, groups_max });
        }
        if let Some(group) = self.groups.get(config.group) {
            return Err(InstallError::GroupInUse { group: group.id(), epoch: group.epoch() });
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

    /// Offers the parent in `group` to exchange datagrams, if this aggregator takes any. To be called
    /// right after the install, if the link given to [`Node::install`] leads to a process of
    /// another host.
    pub fn offer_datagrams(&mut self, group: GroupId) {
        if let Some(port) = self.state.datagram_port
            && let Some(group) = self.groups.get_mut(group)
        {
            group.offer_datagrams(&mut self.outputs, port, self.datagram_segment_max_bytes);
        }
    }

    /// Lets a group's results travel by multicast. The root sends them, in datagrams of
    /// `capability`, to the address that the driver knows; other aggregators receive them. Segments
    /// longer than `segment_max_bytes` are not multicast.
    ///
    /// To be called right after the install wherever the manager grants an address. An aggregator that can
    /// neither send nor receive multicast is told with a `segment_max_bytes` of 0, because members
    /// below it may still receive it and go on with results that this aggregator does not have yet.
    ///
    /// A subscribed child gets a reliable copy only when it repeats its request. A lost multicast
    /// costs it a timeout; the others cost the aggregator nothing.
    pub fn use_multicast(
        &mut self,
        group: GroupId,
        capability: Capability,
        segment_max_bytes: u32,
    ) {
        if let Some(group) = self.groups.get_mut(group) {
            group.use_multicast(capability, segment_max_bytes);
        }
    }

    /// Lets a process that shows `capability` read the group's results. To be called at the group's
    /// root, right after the install.
    pub fn admit_external_receiver(&mut self, group: GroupId, capability: Capability) {
        if let Some(group) = self.groups.get_mut(group) {
            group.admit_external_receiver(capability);
        }
    }

    /// Drops a group on the manager's order, and tells its children and parent. Returns `false` if
    /// there is no such group: it may have failed or ended meanwhile.
    pub fn withdraw(&mut self, group: GroupId, epoch: Epoch) -> bool {
        let Some(found) = self.groups.get(group).filter(|found| found.epoch() == epoch) else {
            return false;
        };
        self.fail(group, found.abort(AbortReason::Withdrawn));
        true
    }

    /// Takes a join over a link that nobody has joined over.
    pub(super) fn handle_join(&mut self, port: PortId, header: &Header) -> Result<(), FrameError> {
        let edge = &header.edge;
        let group = self.groups.get_mut(edge.group).filter(|group| group.epoch() == edge.epoch);
        let Some(group) = group else { return self.handle_late_join(port, header) };
        if edge.child == EXTERNAL_RECEIVER {
            return group.handle_external_receiver_join(&mut self.outputs, port, header);
        }
        let is_formed = group.handle_join(&mut self.outputs, port, header)?;
        self.forming -= u32::from(is_formed);
        Ok(())
    }

    /// A child joins a group that is not there. If it was granted a place, it is told why.
    fn handle_late_join(&mut self, port: PortId, header: &Header) -> Result<(), FrameError> {
        let edge = header.edge;
        let unknown = FrameError::UnknownGroup { group: edge.group, epoch: edge.epoch };
        let abort = self.failed.abort_of(&edge).ok_or(unknown)?;
        self.outputs.bind(port, Role::Closing, 0);
        self.outputs.retire(port, Some(Header { edge, message: Message::Abort(abort) }));
        Ok(())
    }

    /// A link is gone. Its number may be used again.
    pub fn handle_port_closed(&mut self, port: PortId) {
        let is_member = match self.outputs.role(port) {
            Role::Child { group, child } => {
                !self.groups.group_mut(group).is_node(child) || planted_hooks::calls_nodes_members()
            }
            _ => false,
        };
        let reason = if is_member { AbortReason::MemberLost } else { AbortReason::NodeLost };
        self.unbind(port, reason);
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
        let (group, lost) = match role {
            Role::Unbound | Role::Closing => return,
            Role::ExternalReceiver { group } => {
                self.groups.group_mut(group).handle_external_receiver_closed();
                return;
            }
            Role::Parent { group } => {
                let found = self.groups.group_mut(group);
                (group, Err(found.handle_parent_closed(&mut self.outputs, reason)))
            }
            Role::Child { group, child } => {
                (group, self.groups.group_mut(group).handle_child_closed(child, reason))
            }
        };
        if let Err(abort) = lost {
            self.fail(group, abort);
        }
    }

    /// Ends a group in good order.
    pub(super) fn end(&mut self, id: GroupId) {
        let group = self.remove(id);
        group.announce_end(&mut self.outputs);
        self.outputs.stats.groups_ended += 1;
        self.outputs.report(Event::Ended { group: id, epoch: group.epoch() });
        self.outputs.report(Event::Released(group.arena().id));
    }

    pub(super) fn remove(&mut self, id: GroupId) -> Box<Group> {
        let group = self.groups.remove(id);
        self.osos_used -= u32::from(group.osos());
        if group.join_by().is_some() {
            self.forming -= 1;
        }
        if group.awaits_parent() {
            self.repeat_timer.remove();
        }
        group
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
