//! An aggregation node: merges its children's requests, sends one upward, hands results down.
//!
//! A [`Node`] serves any number of groups at once. Its methods are of four families:
//!
//! - *control*: [`Node::install`], [`Node::withdraw`], at the manager's word;
//! - *input*: `handle_frame`, `handle_port_closed`, `handle_port_refused`, `handle_timeout`;
//! - *output*: `poll_ready`, then `peek_transmit` and `pop_transmit` per port, and `poll_event`;
//! - *time*: `poll_timeout` says when `handle_timeout` is due.
//!
//! After any input, drain transmits and events. A port is the driver's number for one link, and
//! one link carries one edge of one group; so a peer that misbehaves takes only its own group with
//! it, and a slow one holds up nobody else's frames.
//!
//! Sequence numbers choose slots (`sequence % slots`, with `slots >= 2 * osos`). A member sends
//! sequence `s` only when everything up to `s - osos` is complete at it, hence was contributed to by
//! every member, each of whom had everything up to `s - 2 * osos`. So a slot's result may be needed
//! again only while its sequence lies within `2 * osos` of the newest: the slots are the result
//! history that answers repeats, and never more is needed.

mod arrivals;
mod config;
mod datagrams;
mod distribution;
mod error;
mod fallen;
mod group;
mod lifecycle;
mod multicast;
mod output;
mod outsider;
mod port;
mod request;
mod slot;
mod slots;
mod stream;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use core::num::NonZeroU16;

use tributary_wire::frame::{Header, Message};
use tributary_wire::{ChildIndex, GroupId, TreeId};

use crate::payloads::Payloads;
use crate::{Carrier, Time};

pub use config::{
    ChildConfig, GroupConfig, InstallError, NodeConfig, ParentConfig, StreamGrant, StreamLimits,
};
pub use error::FrameError;
pub use output::{Event, NodeStats, Transmit};
pub use port::PortId;

use distribution::Answer;
use fallen::Fallen;
use group::{Course, Group};
use port::{Port, Role};
use slots::From;
use stream::StreamLock;

/// An aggregation node. See the module's page.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    /// Indexed by group id: the manager keeps those small and dense.
    groups: Vec<Option<Box<Group>>>,
    /// By group id as well.
    fallen: Vec<Option<Box<Fallen>>>,
    ports: Vec<Port>,
    ready: VecDeque<PortId>,
    events: VecDeque<Event>,
    multicasts: VecDeque<(GroupId, Transmit)>,
    osos_used: u32,
    /// Indexed by tree id.
    locks: Vec<StreamLock>,
    /// Groups still waiting for children to join.
    forming: u32,
    /// Where this node takes datagrams, if it does.
    datagram_port: Option<NonZeroU16>,
    datagram_segment_max_bytes: u32,
    /// Groups that wait for an answer to a datagram upward; while there are none, no timer of
    /// theirs runs.
    asking: u32,
    /// No timer of theirs runs out before this.
    ask_again_at: Option<Time>,
    stats: NodeStats,
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
            fallen: Vec::new(),
            ports: Vec::new(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            multicasts: VecDeque::new(),
            osos_used: 0,
            forming: 0,
            datagram_port: None,
            datagram_segment_max_bytes: 0,
            asking: 0,
            ask_again_at: None,
            stats: NodeStats::default(),
        }
    }

    /// Lets edges use datagrams, which this node takes at the UDP port `port` of every address at
    /// which it takes links. Segments longer than `segment_max_bytes` go up over the link all the
    /// same; down, results follow their requests.
    pub fn take_datagrams(&mut self, port: NonZeroU16, segment_max_bytes: u32) {
        self.datagram_port = Some(port);
        self.datagram_segment_max_bytes = segment_max_bytes;
    }

    /// Takes one frame that arrived on `port`, carried by `carrier`. `payload` is exactly what its
    /// header announces.
    ///
    /// # Errors
    /// If the frame breaks the protocol. If the link carried it, the driver then closes that port
    /// and reports it with [`Node::handle_port_refused`]; nothing but the port's own group is
    /// affected. If it was a datagram, it is dropped, and nothing else happens.
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
        match self.role(port) {
            Role::Unbound => match (header.message, carrier) {
                (Message::Join, Carrier::Link) => self.handle_join(port, header),
                _ => Err(FrameError::WrongPort),
            },
            Role::Closing => {
                self.stats.late += 1;
                Ok(())
            }
            Role::Outsider { group } => self.handle_outsiders_word(group, header),
            Role::Child { group, child } => {
                self.group_mut(group).check_edge(header, child)?;
                let from = From { now, child, carrier };
                match (&header.message, carrier) {
                    (Message::Request(part), Carrier::Link | Carrier::Datagram) => {
                        let course = Course::Segment;
                        self.handle_contribution(group, course, from, part, payload, payloads)
                    }
                    (Message::Chunk(part), Carrier::Link) => {
                        let course = Course::Chunk;
                        self.handle_contribution(group, course, from, part, payload, payloads)
                    }
                    (message, Carrier::Link) => {
                        self.handle_childs_word(port, group, child, message)
                    }
                    (Message::Probe(attempt), Carrier::Datagram) => {
                        self.reply(group, child, Message::Probed(*attempt));
                        Ok(())
                    }
                    (_, Carrier::Datagram | Carrier::Multicast) => Err(FrameError::WrongCarrier),
                }
            }
            Role::Parent { group } => {
                self.group_mut(group).check_parent_edge(header)?;
                match (&header.message, carrier) {
                    (Message::Result(part), Carrier::Link | Carrier::Datagram) => {
                        let answer = Answer { now, carrier, part };
                        self.handle_result(group, Course::Segment, answer, payload, payloads)
                    }
                    (Message::ChunkResult(part), Carrier::Link) => {
                        let answer = Answer { now, carrier, part };
                        self.handle_result(group, Course::Chunk, answer, payload, payloads)
                    }
                    (message, Carrier::Link) => self.handle_parents_word(now, group, message),
                    (message, Carrier::Datagram) => self.handle_sign(now, group, *message),
                    (_, Carrier::Multicast) => Err(FrameError::WrongCarrier),
                }
            }
        }
    }

    /// Takes what a child says over its link beside contributions.
    fn handle_childs_word(
        &mut self,
        port: PortId,
        group: GroupId,
        child: ChildIndex,
        message: &Message,
    ) -> Result<(), FrameError> {
        match *message {
            Message::StreamAsk(ref ask) => self.handle_stream_ask(group, child, ask),
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
            Message::Hears(hearing) => {
                self.handle_hears(group, child, hearing);
                Ok(())
            }
            Message::Join => Err(FrameError::AlreadyJoined { group, child: child.0 }),
            Message::Probe(_) => Err(FrameError::WrongCarrier),
            _ => Err(FrameError::WrongDirection),
        }
    }

    /// Takes what the parent says over its link beside results.
    fn handle_parents_word(
        &mut self,
        now: Time,
        group: GroupId,
        message: &Message,
    ) -> Result<(), FrameError> {
        match *message {
            Message::StreamTurn(operation) => return self.handle_stream_turn(group, operation),
            Message::Joined => {}
            Message::Abort(abort) => self.fail(group, abort),
            Message::Datagrams(theirs) => self.handle_answered_offer(now, group, theirs),
            Message::Probed(_) | Message::Held { .. } | Message::Missing { .. } => {
                return Err(FrameError::WrongCarrier);
            }
            _ => return Err(FrameError::WrongDirection),
        }
        Ok(())
    }

    /// The next port that has something to send; the driver then sends until the port is empty or
    /// its link is full, and in the latter case goes on when the link takes more.
    pub fn poll_ready(&mut self) -> Option<PortId> {
        let port = self.ready.pop_front()?;
        self.ports[port.0 as usize].is_ready = false;
        Some(port)
    }

    /// The next frame for `port`. It stays until [`Node::pop_transmit`].
    #[must_use]
    pub fn peek_transmit(&self, port: PortId) -> Option<Transmit> {
        self.ports.get(port.0 as usize)?.outbox.front().copied()
    }

    /// The port's link has taken the frame.
    pub fn pop_transmit(&mut self, port: PortId) {
        let entry = &mut self.ports[port.0 as usize];
        entry.outbox.pop();
        if entry.outbox.is_empty() && entry.role == Role::Closing {
            self.events.push_back(Event::Close(port));
        }
    }

    /// The next thing the driver has to know or do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Counters since the node was made.
    #[must_use]
    pub fn stats(&self) -> &NodeStats {
        &self.stats
    }

    /// Outstanding operations that groups hold now.
    #[must_use]
    pub fn osos_used(&self) -> u32 {
        self.osos_used
    }
}

#[cfg(test)]
mod tests;
