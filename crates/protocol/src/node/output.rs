//! What a node gives its driver: frames to send, things to know, counters.

use core::num::NonZeroU16;

use tributary_wire::frame::{Abort, Header};
use tributary_wire::{Epoch, GroupId};

use super::PortId;
use crate::payloads::{ArenaId, Place};
use crate::{Carrier, Reach};

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
