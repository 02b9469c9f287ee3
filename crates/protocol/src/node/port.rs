//! A link's end, as the machine sees it.

use alloc::collections::VecDeque;

use tributary_wire::frame::Header;
use tributary_wire::{ChildIndex, GroupId};

use super::{Node, Transmit};
use crate::Carrier;
use crate::payloads::{ArenaId, Place};

/// The driver's number for a link: small and dense. It may be used again after
/// [`Node::handle_port_closed`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// What a link is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// Nobody has joined over it yet.
    #[default]
    Unbound,
    /// A child of a group.
    Child { group: GroupId, child: ChildIndex },
    /// The parent in a group.
    Parent { group: GroupId },
    /// The external receiver of a group.
    ExternalReceiver { group: GroupId },
    /// Its group is gone; what is queued still goes out.
    Closing,
}

#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) role: Role,
    pub(super) outbox: Outbox,
    /// Whether the port stands in the node's list of ports to drain.
    pub(super) is_ready: bool,
}

/// Frames a port may hold beyond one per slot: a join or leave, and an abort.
const OUTBOX_SPARE: usize = 4;

/// What waits to be sent, in order: frames for the link, and datagrams beside it.
///
/// Each kind has its own bound, so that answers to repeated datagrams do not take the room of
/// results for a slow peer's link.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Transmit>,
    datagrams: usize,
    /// Bound of each kind: the most frames that an honest peer can cause.
    max: usize,
}

impl Outbox {
    pub(super) fn front(&self) -> Option<&Transmit> {
        self.queue.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Transmit> {
        self.queue.iter()
    }

    /// False if the bound of its kind is reached.
    fn push(&mut self, transmit: Transmit) -> bool {
        let is_datagram = transmit.carrier != Carrier::Link;
        let waiting = if is_datagram { self.datagrams } else { self.queue.len() - self.datagrams };
        if waiting >= self.max {
            return false;
        }
        self.datagrams += usize::from(is_datagram);
        self.queue.push_back(transmit);
        true
    }

    pub(super) fn pop(&mut self) {
        if let Some(sent) = self.queue.pop_front() {
            self.datagrams -= usize::from(sent.carrier != Carrier::Link);
        }
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.datagrams = 0;
    }

    /// Drops the frames whose payload lies in an arena.
    pub(super) fn forget(&mut self, arena: ArenaId) {
        self.retain(|queued| queued.body.is_none_or(|body| body.arena != arena));
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Transmit) -> bool) {
        self.queue.retain(keep);
        self.datagrams = self.queue.iter().filter(|it| it.carrier != Carrier::Link).count();
    }
}

impl Node {
    /// Frames that wait to be sent at a port. Link frames are bounded by the slots of the group and
    /// of its tree's streams, plus a few. Datagrams have the same bound.
    #[must_use]
    pub fn queued_frames(&self, port: PortId) -> usize {
        self.ports.get(port.0 as usize).map_or(0, |entry| entry.outbox.queue.len())
    }

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
        entry.outbox.max = usize::from(frames) + OUTBOX_SPARE;
        entry.outbox.queue.reserve(2 * entry.outbox.max);
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

    fn enqueue(&mut self, port: PortId, transmit: Transmit) -> bool {
        let is_queued = self.ports[port.0 as usize].outbox.push(transmit);
        if is_queued {
            self.mark_ready(port);
        }
        is_queued
    }

    /// Takes the port from its group. The last message, if any, is sent before the link is closed;
    /// frames that refer to the group's memory are dropped.
    pub(super) fn retire(&mut self, port: PortId, last_message: Option<Header>) {
        let entry = &mut self.ports[port.0 as usize];
        entry.role = Role::Closing;
        entry.outbox.retain(|queued| queued.body.is_none() && queued.carrier == Carrier::Link);
        if let Some(header) = last_message {
            let message = Transmit { header, body: None, carrier: Carrier::Link };
            entry.outbox.queue.push_back(message);
        }
        if entry.outbox.is_empty() {
            self.events.push_back(super::Event::Close(port));
        } else {
            self.mark_ready(port);
        }
    }

    fn mark_ready(&mut self, port: PortId) {
        let entry = &mut self.ports[port.0 as usize];
        if !entry.is_ready {
            entry.is_ready = true;
            self.ready.push_back(port);
        }
    }
}
