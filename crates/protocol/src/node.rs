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
mod fallen;
mod group;
mod lifecycle;
mod multicast;
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

use tributary_wire::frame::{Abort, Header, Message};
use tributary_wire::{ChildIndex, Epoch, GroupId, OperationNumber, TreeId};

use crate::payloads::{ArenaId, Payloads, Place};
use crate::{Carrier, Reach, Time};

pub use config::{
    ChildConfig, GroupConfig, InstallError, NodeConfig, ParentConfig, StreamGrant, StreamLimits,
};
pub use multicast::Copies;
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

/// A frame to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its header.
    pub header: Header,
    /// Where its payload lies, if it has one; `header.payload_bytes()` bytes from there.
    pub body: Option<Place>,
    /// What is to carry it.
    pub carrier: Carrier,
}

/// Something the driver has to know or do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Every child has joined.
    Formed {
        /// The group.
        group: GroupId,
        /// Its incarnation.
        epoch: Epoch,
    },
    /// The group failed; children and parent are being told.
    Failed {
        /// The group.
        group: GroupId,
        /// Its incarnation.
        epoch: Epoch,
        /// Why, and whose fault it was.
        abort: Abort,
    },
    /// Every child left; the parent is being told.
    Ended {
        /// The group.
        group: GroupId,
        /// Its incarnation.
        epoch: Epoch,
    },
    /// Nothing refers to this arena any more.
    Released(ArenaId),
    /// The port has said all it had to say: close the link.
    Close(PortId),
    /// The peer at the other end of a link takes datagrams at this UDP port of the address that
    /// the link leads to. The driver delivers what comes from there from now on.
    DatagramPeer {
        /// The link.
        port: PortId,
        /// The peer's UDP port.
        datagram_port: NonZeroU16,
    },
    /// Whether anybody hears what this node, the group's root, sends to its multicast address: told
    /// when it gives up, and when somebody is heard of after that.
    Multicast {
        /// The group.
        group: GroupId,
        /// What was found.
        reach: Reach,
    },
    /// Whether datagrams to the parent arrive: decided once, and again if they cease to.
    Datagrams {
        /// The link to the parent.
        port: PortId,
        /// What was found.
        reach: Reach,
    },
}

/// Why a frame was refused. The peer is at fault; its link is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No such group here, or not with this epoch.
    #[error("group {group} epoch {epoch} is not served here")]
    UnknownGroup {
        /// The group named.
        group: GroupId,
        /// The epoch named.
        epoch: Epoch,
    },
    /// The capability is not the one granted to that child.
    #[error("forged capability for group {group}")]
    Forged {
        /// The group attacked.
        group: GroupId,
    },
    /// The child's place is taken by another link.
    #[error("child {child} of group {group} has already joined")]
    AlreadyJoined {
        /// The group.
        group: GroupId,
        /// The place.
        child: u16,
    },
    /// A frame before the join, or for another edge than the port's.
    #[error("frame for an edge that this link does not hold")]
    WrongPort,
    /// A message that only travels the other way.
    #[error("this message only travels the other way")]
    WrongDirection,
    /// A segment longer than the group was granted.
    #[error("segment of {bytes} bytes, the group was granted {max_bytes}")]
    TooLong {
        /// Its length.
        bytes: u32,
        /// The grant.
        max_bytes: u32,
    },
    /// A message that travels by datagram came over the link, or the other way round.
    #[error("this message is not carried that way")]
    WrongCarrier,
    /// More segments in flight than the group was granted.
    #[error("sequence {sequence} is outside the {osos} segments granted to the group")]
    OutsideWindow {
        /// The sequence number sent.
        sequence: u32,
        /// The grant.
        osos: u16,
    },
    /// A stream's word where the group streams nothing of that number now.
    #[error("it is not operation {operation}'s turn to stream")]
    OutOfTurn {
        /// The operation named.
        operation: OperationNumber,
    },
    /// A chunk that isn't one of the vector that was asked for.
    #[error("operation {operation} streams no such chunk {chunk}")]
    NotOfStream {
        /// The operation.
        operation: OperationNumber,
        /// How many chunks come before it, by its sequence number.
        chunk: u32,
    },
    /// A result for something that was not asked.
    #[error("result for sequence {sequence}, which is not waiting for one")]
    Unexpected {
        /// The sequence number sent.
        sequence: u32,
    },
    /// The peer sends requests but takes no results.
    #[error("peer does not read its results")]
    NotReading,
}

/// Counters since the node was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Contributions counted.
    pub requests: u64,
    /// Contributions that had been counted before, and were not counted again.
    pub repeats: u64,
    /// Segments completed here: results handed down.
    pub results: u64,
    /// Chunks' contributions counted.
    pub chunks: u64,
    /// Chunks completed here: results handed down.
    pub chunk_results: u64,
    /// Streams that ran to their end here.
    pub streams: u64,
    /// Frames for groups that were gone by the time they came; dropped.
    pub late: u64,
    /// Repeats of requests that wait for other children, told so.
    pub held: u64,
    /// Requests that children were told of as missing.
    pub missing: u64,
    /// Own requests sent upward again.
    pub repeated: u64,
    /// Edges upward that went over to their link because datagrams do not arrive.
    pub silent_edges: u64,
    /// Results sent to multicast addresses.
    pub multicasts: u64,
    /// Reliable copies of such results that were not sent because their receivers hear multicast.
    pub spared: u64,
    /// Results sent to processes outside their groups.
    pub outsider_results: u64,
    /// Results for such a process while none was there.
    pub outsider_missed: u64,
    /// Such processes that lost their place because they did not read in time.
    pub outsiders_dropped: u64,
    /// Datagrams not sent because too many waited already.
    pub dropped: u64,
    /// Groups that failed.
    pub groups_failed: u64,
    /// Groups that ended in good order.
    pub groups_ended: u64,
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
                match (&header.message, carrier) {
                    (Message::Request(part), Carrier::Link | Carrier::Datagram) => {
                        let (course, from) = (Course::Segment, From { now, child, carrier });
                        self.handle_contribution(group, course, from, part, payload, payloads)
                    }
                    (Message::Chunk(part), Carrier::Link) => {
                        self.handle_chunk(now, group, child, part, payload, payloads)
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
                        self.handle_chunk_result(now, group, part, payload, payloads)
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
        entry.outbox.pop_front();
        if entry.outbox.is_empty() {
            // Back to the beginning of its memory: a port that seldom holds more than one frame
            // keeps to the same cache lines.
            entry.outbox.clear();
            if entry.role == Role::Closing {
                self.events.push_back(Event::Close(port));
            }
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
