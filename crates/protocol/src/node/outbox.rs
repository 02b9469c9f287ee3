//! What waits to be sent at one port.

use alloc::collections::VecDeque;

use tributary_wire::frame::Header;

use crate::Carrier;
use crate::payloads::{ArenaId, Place};

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

/// Frames a port may hold beyond one per slot: a join or leave, and an abort.
const SPARE: usize = 4;

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
    /// Makes room for `frames` of each kind, and for what may come beside them.
    pub(super) fn reserve(&mut self, frames: u16) {
        self.max = usize::from(frames) + SPARE;
        self.queue.reserve(2 * self.max);
    }

    pub(super) fn front(&self) -> Option<&Transmit> {
        self.queue.front()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Transmit> {
        self.queue.iter()
    }

    /// False if the bound of its kind is reached.
    pub(super) fn push(&mut self, transmit: Transmit) -> bool {
        let is_datagram = transmit.carrier != Carrier::Link;
        let waiting = if is_datagram { self.datagrams } else { self.queue.len() - self.datagrams };
        if waiting >= self.max {
            return false;
        }
        self.datagrams += usize::from(is_datagram);
        self.queue.push_back(transmit);
        true
    }

    /// Adds the last message for the link, whatever its bound.
    pub(super) fn push_last(&mut self, header: Header) {
        self.queue.push_back(Transmit { header, body: None, carrier: Carrier::Link });
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

    /// Drops datagrams, and frames with a payload.
    pub(super) fn drop_data(&mut self) {
        self.retain(|queued| queued.body.is_none() && queued.carrier == Carrier::Link);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Transmit) -> bool) {
        self.queue.retain(keep);
        self.datagrams = self.queue.iter().filter(|it| it.carrier != Carrier::Link).count();
    }
}
