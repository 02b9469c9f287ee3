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

mod arrivals;
mod config;
mod datagrams;
mod distribution;
mod elsewhere;
mod error;
mod external_receiver;
mod failed;
mod group;
mod lifecycle;
mod multicast;
mod outbox;
mod outputs;
mod port;
mod questions;
mod request;
mod slot;
mod slots;
mod stream;
mod waits;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use core::num::NonZeroU16;

use tributary_wire::frame::{Header, Message};
use tributary_wire::{ChildIndex, GroupId, TreeId};

use crate::payloads::Payloads;
use crate::{Carrier, Time};

pub use config::{
    ChildConfig, GroupConfig, InstallError, NodeConfig, ParentConfig, StreamConfig, StreamLimits,
};
pub use elsewhere::{ChildEdge, GroupTerms, MulticastTerms, ParentEdge};
pub use error::FrameError;
pub use outbox::Transmit;
pub use outputs::{Event, NodeStats};
pub use port::PortId;
pub use waits::{Wait, WaitsFor};

use distribution::Answer;
use failed::FailedGroup;
use group::{Group, PartKind};
use outputs::Outputs;
use port::Role;
use slots::From;
use stream::StreamLock;

/// An aggregation node; see the module documentation.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    /// Indexed by group id: the manager keeps those small and dense.
    groups: Vec<Option<Box<Group>>>,
    /// Failed groups whose children are not all told, oldest first.
    failed: VecDeque<FailedGroup>,
    outputs: Outputs,
    osos_used: u32,
    /// Indexed by tree id.
    locks: Vec<StreamLock>,
    /// Groups still waiting for children to join.
    forming: u32,
    /// How many groups have failed because a node of theirs was lost.
    losses: u64,
    /// The UDP port at which this node takes datagrams, if it does.
    datagram_port: Option<NonZeroU16>,
    datagram_segment_max_bytes: u32,
    /// Groups that wait for an answer to a datagram they sent upward. Without any, no such timer
    /// runs.
    unanswered_groups: u32,
    /// Earliest timer of those groups.
    repeat_at: Option<Time>,
}

impl Node {
    /// A node that serves no group yet.
    #[must_use]
    pub fn new(config: NodeConfig) -> Self {
        let trees = (0..config.streams.trees).map(TreeId);
        let lock = |tree| StreamLock::new(tree, &config.streams, config.radix_max);
        Self {
            locks: trees.map(lock).collect(),
            config,
            groups: Vec::new(),
            failed: VecDeque::new(),
            outputs: Outputs::default(),
            osos_used: 0,
            forming: 0,
            losses: 0,
            datagram_port: None,
            datagram_segment_max_bytes: 0,
            unanswered_groups: 0,
            repeat_at: None,
        }
    }

    /// Lets edges use datagrams. This node takes them at the UDP port `port` of every address at
    /// which it takes links. Segments longer than `segment_max_bytes` go up over the link all the
    /// same. Results go down the way their requests came.
    pub fn take_datagrams(&mut self, port: NonZeroU16, segment_max_bytes: u32) {
        self.datagram_port = Some(port);
        self.datagram_segment_max_bytes = segment_max_bytes;
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
                self.handle_external_receiver_message(group, header)
            }
            Role::Child { group, child } => {
                self.group_mut(group).check_edge(header, child)?;
                let from = From { now, child, carrier };
                match (&header.message, carrier) {
                    (Message::Request(part), Carrier::Link | Carrier::Datagram) => {
                        let kind = PartKind::Segment;
                        self.handle_contribution(group, kind, from, part, payload, payloads)
                    }
                    (Message::Chunk(part), Carrier::Link) => {
                        let kind = PartKind::Chunk;
                        self.handle_contribution(group, kind, from, part, payload, payloads)
                    }
                    (message, Carrier::Link) => {
                        self.handle_child_message(now, port, group, child, message)
                    }
                    (Message::Probe(attempt), Carrier::Datagram) => {
                        self.reply(group, child, Message::Probed(*attempt));
                        Ok(())
                    }
                    (_, Carrier::Datagram | Carrier::Multicast) => Err(FrameError::WrongCarrier),
                }
            }
            Role::Parent { group } => {
                let losses = self.losses;
                let state = self.group_mut(group);
                state.check_parent_edge(header)?;
                state.parent_liveness.on_frame();
                state.losses_at_parent_frame = losses;
                match (&header.message, carrier) {
                    (Message::Result(part), Carrier::Link | Carrier::Datagram) => {
                        let answer = Answer { now, carrier, part };
                        self.handle_result(group, PartKind::Segment, answer, payload, payloads)
                    }
                    (Message::ChunkResult(part), Carrier::Link) => {
                        let answer = Answer { now, carrier, part };
                        self.handle_result(group, PartKind::Chunk, answer, payload, payloads)
                    }
                    (message, Carrier::Link) => self.handle_parent_message(now, group, message),
                    (message, Carrier::Datagram) => {
                        self.handle_parent_datagram(now, group, *message)
                    }
                    (_, Carrier::Multicast) => Err(FrameError::WrongCarrier),
                }
            }
        }
    }

    /// Takes any message from a child's link except contributions.
    fn handle_child_message(
        &mut self,
        now: Time,
        port: PortId,
        group: GroupId,
        child: ChildIndex,
        message: &Message,
    ) -> Result<(), FrameError> {
        match *message {
            Message::StreamRequest(ref request) => {
                self.handle_stream_request(group, child, request)
            }
            Message::StreamDone(operation) => self.handle_stream_done(group, child, operation),
            Message::Leave => self.handle_leave(group, child),
            Message::Abort(abort) => {
                self.fail(group, abort);
                Ok(())
            }
            Message::Datagrams(theirs) => {
                self.handle_offer(port, group, child, theirs);
                Ok(())
            }
            Message::Subscribed(subscription) => {
                self.handle_subscribed(group, child, subscription);
                Ok(())
            }
            Message::Join => Err(FrameError::AlreadyJoined { group, child: child.0 }),
            Message::Probe(number) => {
                self.answer_question(now, port, group, child, number);
                Ok(())
            }
            _ => Err(FrameError::WrongDirection),
        }
    }

    /// Takes any message from the parent's link except results.
    fn handle_parent_message(
        &mut self,
        now: Time,
        group: GroupId,
        message: &Message,
    ) -> Result<(), FrameError> {
        match *message {
            Message::StreamGrant(operation) => return self.handle_stream_grant(group, operation),
            // It answers a question, and has said so by coming.
            Message::Joined | Message::Probed(_) => {}
            Message::Abort(abort) => self.fail(group, abort),
            Message::Datagrams(theirs) => self.handle_answered_offer(now, group, theirs),
            Message::Ack { .. } | Message::Nack { .. } => {
                return Err(FrameError::WrongCarrier);
            }
            _ => return Err(FrameError::WrongDirection),
        }
        Ok(())
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

    /// Frames that wait to be sent at a port. Link frames are bounded by the slots of the group and
    /// of its tree's streams, plus a few. Datagrams have the same bound.
    #[must_use]
    pub fn queued_frames(&self, port: PortId) -> usize {
        self.outputs.queued_frames(port)
    }

    /// The next thing the driver has to know or do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outputs.poll_event()
    }

    /// Counters since the node was made.
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
