//! What an aggregator gives its driver: frames for each port, events and counters.
//!
//! Knows what a port is for, so as to close it once it has sent all, and nothing of what groups do.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use tributary_wire::frame::{Abort, Header};
use tributary_wire::{Epoch, GroupId};

use super::outbox::{Outbox, Transmit};
use super::port::{PortId, Role};
use crate::payloads::{ArenaId, Place};
use crate::{Carrier, Reachability};

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
    /// Whether this aggregator, the group's root, multicasts: sent when it stops for lack of subscribers,
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

/// Counters since the aggregator was made.
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

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    ports: Vec<Port>,
    /// Ports to drain.
    ready: VecDeque<PortId>,
    events: VecDeque<Event>,
    multicasts: VecDeque<(GroupId, Transmit)>,
    pub(super) stats: NodeStats,
}

/// A link's end.
#[derive(Debug, Default)]
struct Port {
    role: Role,
    outbox: Outbox,
    /// Whether it stands in the list of ports to drain.
    is_ready: bool,
}

impl Outputs {
    pub(super) fn role(&self, port: PortId) -> Role {
        self.ports.get(port.0 as usize).map_or(Role::Unbound, |entry| entry.role)
    }

    /// Gives an unbound port its role, with room for every frame the role can have outstanding.
    pub(super) fn bind(&mut self, port: PortId, role: Role, frames: u16) {
        let index = port.0 as usize;
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, Port::default);
        }
        let entry = &mut self.ports[index];
        debug_assert_eq!(entry.role, Role::Unbound);
        entry.role = role;
        entry.outbox.reserve(frames);
    }

    /// Takes its role from a port whose link is gone, and drops what waits there.
    pub(super) fn unbind(&mut self, port: PortId) {
        if let Some(entry) = self.ports.get_mut(port.0 as usize) {
            entry.role = Role::Unbound;
            entry.outbox.clear();
        }
    }

    pub(super) fn set_role(&mut self, port: PortId, role: Role) {
        self.entry(port).role = role;
    }

    /// Takes the port from its group. The last message, if any, is sent before the link is closed;
    /// frames that refer to the group's memory are dropped.
    pub(super) fn retire(&mut self, port: PortId, last_message: Option<Header>) {
        let entry = self.entry(port);
        entry.role = Role::Closing;
        entry.outbox.drop_data();
        if let Some(header) = last_message {
            entry.outbox.push_last(header);
        }
        if entry.outbox.is_empty() {
            self.events.push_back(Event::Close(port));
        } else {
            self.mark_ready(port);
        }
    }

    /// Queues a frame for the link. `false` if the port holds as many as an honest peer can cause.
    #[must_use]
    pub(super) fn transmit(&mut self, port: PortId, header: Header, body: Option<Place>) -> bool {
        self.enqueue(port, Transmit { header, body, carrier: Carrier::Link })
    }

    /// Queues a datagram, or drops it if too many wait. A datagram may be lost anyway, and the peer
    /// repeats its request.
    pub(super) fn transmit_datagram(&mut self, port: PortId, header: Header, body: Option<Place>) {
        let is_queued = self.enqueue(port, Transmit { header, body, carrier: Carrier::Datagram });
        self.stats.dropped += u64::from(!is_queued);
    }

    /// Queues a frame for a group's multicast address.
    pub(super) fn multicast(&mut self, group: GroupId, header: Header, body: Option<Place>) {
        self.stats.multicasts += 1;
        self.multicasts.push_back((group, Transmit { header, body, carrier: Carrier::Multicast }));
    }

    fn enqueue(&mut self, port: PortId, transmit: Transmit) -> bool {
        let is_queued = self.entry(port).outbox.push(transmit);
        if is_queued {
            self.mark_ready(port);
        }
        is_queued
    }

    fn mark_ready(&mut self, port: PortId) {
        let entry = &mut self.ports[port.0 as usize];
        if !entry.is_ready {
            entry.is_ready = true;
            self.ready.push_back(port);
        }
    }

    fn entry(&mut self, port: PortId) -> &mut Port {
        &mut self.ports[port.0 as usize]
    }

    pub(super) fn outbox(&self, port: PortId) -> &Outbox {
        &self.ports[port.0 as usize].outbox
    }

    pub(super) fn outbox_mut(&mut self, port: PortId) -> &mut Outbox {
        &mut self.entry(port).outbox
    }

    pub(super) fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Reports that datagrams to the parent arrive, or not, if that was found out.
    pub(super) fn report_datagrams(&mut self, port: PortId, decided: Option<Reachability>) {
        let Some(reachability) = decided else { return };
        self.stats.silent_edges += u64::from(reachability == Reachability::Unreachable);
        self.report(Event::Datagrams { port, reachability });
    }

    pub(super) fn poll_ready(&mut self) -> Option<PortId> {
        let port = self.ready.pop_front()?;
        self.entry(port).is_ready = false;
        Some(port)
    }

    pub(super) fn peek_transmit(&self, port: PortId) -> Option<Transmit> {
        self.ports.get(port.0 as usize)?.outbox.front().copied()
    }

    pub(super) fn pop_transmit(&mut self, port: PortId) {
        let entry = self.entry(port);
        entry.outbox.pop();
        if entry.outbox.is_empty() && entry.role == Role::Closing {
            self.report(Event::Close(port));
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn poll_multicast(&mut self) -> Option<(GroupId, Transmit)> {
        self.multicasts.pop_front()
    }

    pub(super) fn queued_frames(&self, port: PortId) -> usize {
        self.ports.get(port.0 as usize).map_or(0, |entry| entry.outbox.len())
    }
}
