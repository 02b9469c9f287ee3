//! An aggregation node: merges its children's requests, sends one upward, hands results down.
//!
//! A [`Node`] serves any number of groups at once. Its methods are of four families:
//!
//! - *control*: [`Node::install`] and [`Node::withdraw`], as the manager orders;
//! - *input*: `handle_frame`, `handle_port_closed`, `handle_port_refused`, `handle_timeout`;
//! - *output*: `poll_ready`, then `peek_transmit` and `pop_transmit` per port, and `poll_event`;
//! - *time*: `poll_timeout` says when `handle_timeout` is due.
//!
//! After any input, drain transmits and events. A port is the driver's number for one link, and one
//! link carries one edge of one group. A peer that misbehaves therefore fails only its own group,
//! and a slow peer delays nobody else's frames.
//!
//! Sequence numbers choose slots (`sequence % slots`, with `slots >= 2 * osos`). A member sends
//! sequence `s` only when it has every result up to `s - osos`. So every member has contributed to
//! `s - osos`, and therefore has every result up to `s - 2 * osos`. A slot's result can only be
//! needed again while its sequence lies within `2 * osos` of the newest. The slots are all the
//! history that repeats need.

mod config;
mod error;
mod failed;
mod group;
mod groups;
mod kernel_path;
mod lifecycle;
mod outbox;
mod outputs;
mod planted_hooks;
mod port;
mod repeat_timer;
mod stream_lock;
mod streams;

use alloc::boxed::Box;
use alloc::vec::Vec;

use tributary_wire::frame::{Abort, AbortReason, Header, Message};
use tributary_wire::{Capability, GroupId, TreeId};

use crate::payloads::Payloads;
use crate::{Carrier, Time};

pub use config::{
    ChildConfig, GroupConfig, InstallError, NodeConfig, ParentConfig, StreamConfig, StreamLimits,
};
pub use error::FrameError;
pub use group::{ChildEdge, GroupTerms, MulticastTerms, ParentEdge, SegmentState, Wait, WaitsFor};
pub use kernel_path::{KernelPathHandle, KernelPathView};
pub use outbox::Transmit;
pub use outputs::{Event, NodeStats};
pub use port::PortId;

use failed::FailedGroups;
use group::{Consequence, Group, GroupError, NodeState, Origin};
use groups::Groups;
use outputs::Outputs;
use port::Role;
use repeat_timer::RepeatTimer;
use stream_lock::StreamLock;

/// An aggregation node; see the module documentation.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    groups: Groups,
    /// Failed groups whose children are not all told.
    failed: FailedGroups,
    outputs: Outputs,
    osos_used: u32,
    /// Indexed by tree id.
    locks: Box<[StreamLock]>,
    /// Groups still waiting for children to join.
    forming: u32,
    state: NodeState,
    datagram_segment_max_bytes: u32,
    repeat_timer: RepeatTimer,
}

impl Node {
    /// An aggregator that serves no group yet.
    #[must_use]
    pub fn new(config: NodeConfig) -> Self {
        let trees = (0..config.streams.trees).map(TreeId);
        let lock = |tree| StreamLock::new(tree, &config.streams, config.radix_max);
        Self {
            locks: trees.map(lock).collect(),
            config,
            groups: Groups::default(),
            failed: FailedGroups::default(),
            outputs: Outputs::default(),
            osos_used: 0,
            forming: 0,
            state: NodeState::default(),
            datagram_segment_max_bytes: 0,
            repeat_timer: RepeatTimer::default(),
        }
    }

    /// Takes one frame that arrived on `port`, carried by `carrier`. `payload` is exactly what its
    /// header announces.
    ///
    /// # Errors
    /// If the frame breaks the protocol. If the link carried it, the driver then closes that port
    /// and reports it with [`Node::handle_port_refused`], which affects the port's own group only.
    /// If it was a datagram, it is dropped, and nothing else happens.
    pub fn handle_frame(
        &mut self,
        now: Time,
        port: PortId,
        carrier: Carrier,
        header: &Header,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        debug_assert_eq!(payload.len(), header.payload_bytes(), "drivers deliver whole frames");
        match self.outputs.role(port) {
            Role::Unbound => match (header.message, carrier) {
                (Message::Join, Carrier::Link) => self.handle_join(port, header),
                _ => Err(FrameError::WrongPort),
            },
            Role::Closing => {
                self.outputs.stats.late += 1;
                Ok(())
            }
            Role::ExternalReceiver { group } => {
                let group = self.groups.group_mut(group);
                group.handle_external_receiver_message(&mut self.outputs, header)
            }
            Role::Child { group, child } => {
                let origin = Origin { now, child, carrier };
                self.advance(group, |group, out, node| {
                    group.handle_child_frame(out, origin, node, header, payload, payloads)
                })
            }
            Role::Parent { group } => self.advance(group, |group, out, node| {
                group.handle_parent_frame(out, now, carrier, node, header, payload, payloads)
            }),
        }
    }

    /// Takes a frame that came by multicast.
    ///
    /// # Errors
    /// If it is not a result of a group that this aggregator serves below another aggregator, or does not show
    /// the group's capability. It is dropped, and nothing else happens.
    pub fn handle_multicast(
        &mut self,
        now: Time,
        header: &Header,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let (id, epoch) = (header.edge.group, header.edge.epoch);
        if self.groups.get(id).is_none() {
            return Err(FrameError::UnknownGroup { group: id, epoch });
        }
        self.advance(id, |group, out, _| {
            group.handle_multicast(out, now, header, payload, payloads)?;
            Ok(Consequence::None)
        })
    }

    /// Lets a group take an input, and does what follows from it: the only place that sets the timer of repeats and
    /// that fails a group for what it was sent.
    fn advance(
        &mut self,
        id: GroupId,
        take: impl FnOnce(&mut Group, &mut Outputs, &NodeState) -> Result<Consequence, GroupError>,
    ) -> Result<(), FrameError> {
        let group = self.groups.group_mut(id);
        let was_waiting = group.awaits_parent();
        let taken = take(group, &mut self.outputs, &self.state);
        self.repeat_timer.update(was_waiting, group);
        match taken {
            Ok(Consequence::None) => {}
            Ok(Consequence::GroupEnds) => self.end(id),
            Ok(Consequence::AwaitsLock) => self.await_lock(id),
            Ok(Consequence::StreamEnds(operation)) => self.finish_stream(id, operation),
            Ok(Consequence::ParentLost) => self.give_up_parent(id),
            Err(GroupError::Failed(abort)) => self.fail(id, abort),
            Err(GroupError::Refused(error)) => return Err(error),
        }
        Ok(())
    }

    /// Fails a group: tells everyone around it and frees what it used.
    fn fail(&mut self, id: GroupId, abort: Abort) {
        if let Some(tree) = self.drop_group(id, abort) {
            self.serve_lock(tree);
        }
    }

    /// Fails a group. Returns the tree whose stream lock it may have had; the caller serves that
    /// lock.
    fn drop_group(&mut self, id: GroupId, abort: Abort) -> Option<TreeId> {
        let tree = self.leave_lock(id);
        let group = self.remove(id);
        self.failed.record(&group, abort);
        group.announce_failure(&mut self.outputs, abort);
        self.outputs.stats.groups_failed += 1;
        self.state.losses += u64::from(abort.reason == AbortReason::NodeLost);
        self.outputs.report(Event::Failed { group: id, epoch: group.epoch(), abort });
        self.outputs.report(Event::Released(group.arena().id));
        tree
    }

    /// Fails all groups that have the parent of this one: a program waits for one group after the other, and would
    /// find each of them stuck in turn.
    #[cold]
    fn give_up_parent(&mut self, id: GroupId) {
        let Some(name) = self.groups.group_mut(id).parent_name().map(Box::<str>::from) else {
            return;
        };
        let is_below = |group: &&Group| group.parent_name() == Some(&*name);
        let below: Vec<GroupId> = self.groups.iter().filter(is_below).map(Group::id).collect();
        for id in below {
            // One that was next to stream, and whose children read nothing, has failed with an earlier one.
            if let Some(group) = self.groups.get(id) {
                self.fail(id, group.abort(AbortReason::NodeLost));
            }
        }
    }

    /// When [`Node::handle_timeout`] is due; none without a timer.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let repeat = self.repeat_timer.due_at();
        if self.forming == 0 {
            return repeat;
        }
        self.groups.iter().filter_map(Group::join_by).chain(repeat).min()
    }

    /// Repeats what is due upward, and fails every group whose children did not all join in time.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.repeat_timer.due_at().is_some_and(|due| due <= now) {
            self.repeat_timer.reset();
            for group in self.groups.iter_mut().filter(|group| group.awaits_parent()) {
                group.handle_timeout(&mut self.outputs, now);
                self.repeat_timer.update(true, group);
            }
        }
        if self.forming > 0 {
            for id in self.groups.ids() {
                let Some(group) = self.groups.get(id) else { continue };
                if group.join_by().is_some_and(|join_by| join_by <= now) {
                    self.fail(id, group.join_timeout());
                }
            }
        }
    }

    /// The next port with something to send. The driver sends until the port is empty or its link
    /// is full, and continues a full one when the link takes more.
    pub fn poll_ready(&mut self) -> Option<PortId> {
        self.outputs.poll_ready()
    }

    /// The next frame for `port`. It stays until [`Node::pop_transmit`].
    #[must_use]
    pub fn peek_transmit(&self, port: PortId) -> Option<Transmit> {
        self.outputs.peek_transmit(port)
    }

    /// The port's link has taken the frame.
    pub fn pop_transmit(&mut self, port: PortId) {
        self.outputs.pop_transmit(port);
    }

    /// The next frame for a group's multicast address. It is removed at once.
    pub fn poll_multicast(&mut self) -> Option<(GroupId, Transmit)> {
        self.outputs.poll_multicast()
    }

    /// The next thing the driver has to know or do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outputs.poll_event()
    }

    /// Frames that wait to be sent at a port. Link frames are bounded by the slots of the group and
    /// of its tree's streams, plus a few. Datagrams have the same bound.
    #[must_use]
    pub fn queued_frames(&self, port: PortId) -> usize {
        self.outputs.queued_frames(port)
    }

    /// The port whose edge a datagram names, if its capability is right. The driver checks that it
    /// comes from the peer's address.
    #[must_use]
    pub fn port_of_datagram(&self, header: &Header) -> Option<PortId> {
        self.groups.get(header.edge.group)?.port_of_datagram(header)
    }

    /// What datagrams of this aggregator's edges show: a datagram with another capability has no port. There are new
    /// ones after [`Node::install`] alone.
    pub fn capabilities(&self) -> impl Iterator<Item = Capability> {
        self.groups.iter().flat_map(Group::capabilities)
    }

    /// What its groups wait for now, one by one. Costs a few slots' reading for each group.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + '_ {
        self.groups.iter().filter_map(Group::wait)
    }

    /// Counters since the aggregator was made.
    #[must_use]
    pub fn stats(&self) -> &NodeStats {
        &self.outputs.stats
    }

    /// Outstanding operations that groups hold now.
    #[must_use]
    pub fn osos_used(&self) -> u32 {
        self.osos_used
    }
}

#[cfg(test)]
mod tests;
