//! What a node gives its driver: frames, events and counters.

use core::num::NonZeroU16;

use tributary_wire::frame::{Abort, Header};
use tributary_wire::{Epoch, GroupId};

use super::PortId;
use crate::payloads::{ArenaId, Place};
use crate::{Carrier, Reachability};

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
    /// The port has sent all it had to send: close the link.
    Close(PortId),
    /// The peer at the other end of a link takes datagrams at this UDP port of the address that the
    /// link leads to. The driver delivers datagrams from there from now on.
    DatagramPeer {
        /// The link.
        port: PortId,
        /// The peer's UDP port.
        datagram_port: NonZeroU16,
    },
    /// Whether this node, the group's root, multicasts: sent when it stops for lack of subscribers,
    /// and when there is one again.
    Multicast {
        /// The group.
        group: GroupId,
        /// What was found.
        reachability: Reachability,
    },
    /// Whether datagrams to the parent arrive: sent once, and again if they cease to arrive.
    Datagrams {
        /// The link to the parent.
        port: PortId,
        /// What was found.
        reachability: Reachability,
    },
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
    /// Acks sent: repeats of requests that wait for other children.
    pub acks: u64,
    /// Nacks sent: requests that came by datagram after a later one, or not at all.
    pub nacks: u64,
    /// Own requests sent upward again.
    pub repeated: u64,
    /// Edges to parents that use only their link because datagrams do not arrive.
    pub silent_edges: u64,
    /// Results sent to multicast addresses.
    pub multicasts: u64,
    /// Reliable copies not sent because the child is subscribed to multicast.
    pub spared: u64,
    /// Results sent to external receivers.
    pub external_results: u64,
    /// Results for an external receiver while none had joined.
    pub external_missed: u64,
    /// External receivers dropped because they did not read in time.
    pub external_dropped: u64,
    /// Datagrams not sent because too many waited already.
    pub dropped: u64,
    /// Groups that failed.
    pub groups_failed: u64,
    /// Groups that ended in good order.
    pub groups_ended: u64,
}
