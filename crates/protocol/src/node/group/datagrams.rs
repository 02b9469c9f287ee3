//! What edges with datagrams need: offers, probes, repeats upward, acks and nacks.

use core::num::NonZeroU16;

use tributary_wire::frame::{Header, Message};
use tributary_wire::{Capability, ChildIndex, Sequence};

use super::Group;
use super::slot::Phase;
use super::slots::Origin;
use crate::node::FrameError;
use crate::node::outputs::{Event, Outputs};
use crate::node::port::PortId;
use crate::{Carrier, Time};

impl Group {
    /// Offers the parent to exchange datagrams, which this aggregator takes at `port`.
    pub(in crate::node) fn offer_datagrams(
        &mut self,
        out: &mut Outputs,
        port: NonZeroU16,
        segment_max_bytes: u32,
    ) {
        if self.is_root() || !self.upward.may_offer() {
            return;
        }
        self.upward.on_offering(segment_max_bytes);
        // The link has room right after the install. If not, this edge has no datagrams.
        let is_queued = self.tell_parent(out, Message::Datagrams(Some(port)));
        out.stats.dropped += u64::from(!is_queued);
    }

    /// The port of the edge that a datagram names, if its capability is right.
    pub(in crate::node) fn port_of_datagram(&self, header: &Header) -> Option<PortId> {
        let edge = &header.edge;
        if edge.epoch != self.epoch {
            return None;
        }
        if matches!(header.message, Message::Request(_) | Message::Probe(_)) {
            let child = self.children.get(usize::from(edge.child.0))?;
            return child.port.filter(|_| child.capability == edge.capability);
        }
        let parent = self.parent.as_ref()?;
        let is_ours = parent.child == edge.child && parent.capability == edge.capability;
        is_ours.then_some(parent.port)
    }

    /// What datagrams of its edges show.
    pub(in crate::node) fn capabilities(&self) -> impl Iterator<Item = Capability> {
        let children = self.children.iter().map(|child| child.capability);
        children.chain(self.parent.iter().map(|parent| parent.capability))
    }

    /// Whether an answer to a datagram is awaited from the parent.
    pub(in crate::node) fn awaits_parent(&self) -> bool {
        self.upward.is_waiting()
    }

    /// When what the parent has not answered is repeated.
    pub(in crate::node) fn next_repeat(&self) -> Option<Time> {
        self.upward.poll_timeout()
    }

    /// A child takes datagrams, or not: answers whether this aggregator does, which takes them at `ours`.
    pub(super) fn handle_offer(
        &self,
        out: &mut Outputs,
        child: ChildIndex,
        theirs: Option<NonZeroU16>,
        ours: Option<NonZeroU16>,
    ) {
        let Some(port) = self.child(child).port else { return };
        let ours = ours.filter(|_| theirs.is_some());
        let answer = self.header_to_child(child, Message::Datagrams(ours));
        if !out.transmit(port, answer, None) {
            // A child that offers again and again without reading the answers gets none.
            out.stats.dropped += 1;
            return;
        }
        if let (Some(datagram_port), Some(_)) = (theirs, ours) {
            out.report(Event::DatagramPeer { port, datagram_port });
        }
    }

    /// The parent takes datagrams, or not.
    pub(super) fn handle_answered_offer(
        &mut self,
        out: &mut Outputs,
        now: Time,
        theirs: Option<NonZeroU16>,
    ) {
        let Some(port) = self.parent_port() else { return };
        if !self.upward.is_offered() {
            return;
        }
        if let Some(datagram_port) = theirs {
            out.report(Event::DatagramPeer { port, datagram_port });
        }
        let decided = self.upward.on_answer(now, theirs);
        out.report_datagrams(port, decided);
        self.send_upward(out, now);
    }

    /// Takes a datagram from the parent that is no result.
    pub(super) fn handle_parent_datagram(
        &mut self,
        out: &mut Outputs,
        now: Time,
        message: &Message,
    ) -> Result<(), FrameError> {
        let Some(port) = self.parent_port() else { return Ok(()) };
        let mut decided = None;
        self.upward.on_datagram(now);
        match *message {
            Message::Probed(attempt) => decided = self.upward.on_probed(now, attempt),
            Message::Ack { sequence, attempt } => self.upward.on_ack(now, sequence, attempt),
            Message::Nack { sequence } => self.upward.on_nack(sequence),
            Message::Joined
            | Message::Abort(_)
            | Message::Datagrams(_)
            | Message::StreamGrant(_)
            | Message::ChunkResult(_) => {
                return Err(FrameError::WrongCarrier);
            }
            _ => return Err(FrameError::WrongDirection),
        }
        out.report_datagrams(port, decided);
        self.send_upward(out, now);
        Ok(())
    }

    /// Repeats what is due upward.
    pub(in crate::node) fn handle_timeout(&mut self, out: &mut Outputs, now: Time) {
        let decided = self.upward.handle_timeout(now);
        if let Some(port) = self.parent_port() {
            out.report_datagrams(port, decided);
        }
        self.send_upward(out, now);
    }

    /// Sends the parent the probe or the repeats that are due.
    pub(super) fn send_upward(&mut self, out: &mut Outputs, now: Time) {
        if let Some(probe) = self.upward.probe() {
            let Some((port, header)) = self.header_to_parent(probe) else { return };
            out.transmit_datagram(port, header, None);
            self.upward.on_probe_sent(now);
        }
        while let Some(repeat) = self.upward.next_repeat() {
            self.upward.on_repeated(now, repeat);
            let index = self.slots.index_of(repeat.sequence);
            let slot = &self.slots[index];
            let Some(mut part) = slot.part.filter(|part| part.sequence == repeat.sequence) else {
                continue;
            };
            if slot.phase != Phase::Forwarded {
                continue;
            }
            part.has_data = slot.has_data;
            part.retransmit.attempt = repeat.attempt;
            let body = part.has_data.then(|| self.slots.accumulator(index));
            let Some((port, header)) = self.header_to_parent(Message::Request(part)) else {
                return;
            };
            out.stats.repeated += 1;
            match repeat.carrier {
                Carrier::Datagram | Carrier::Multicast => {
                    out.transmit_datagram(port, header, body);
                }
                Carrier::Link => {
                    // If a link takes nothing more, it fails in the end, and the group with it.
                    let is_queued = out.transmit(port, header, body);
                    out.stats.dropped += u64::from(!is_queued);
                }
            }
        }
    }

    /// Sends a child a datagram without payload.
    pub(super) fn reply(&self, out: &mut Outputs, child: ChildIndex, message: Message) {
        if let Some(port) = self.child(child).port {
            out.transmit_datagram(port, self.header_to_child(child, message), None);
        }
    }

    /// Notes that a request has come. If it came by datagram, nacks every earlier one that has not
    /// come.
    pub(super) fn send_nacks(&mut self, out: &mut Outputs, origin: Origin, sequence: Sequence) {
        let slots = self.slots.len() as u32;
        let child = self.child_mut(origin.child);
        let first = child.next;
        let gap = sequence.distance_from(first);
        if gap >= 1 << 31 {
            // It had been nacked itself.
            return;
        }
        child.next = sequence.next();
        // Requests over the link can be overtaken, but not lost.
        if origin.carrier == Carrier::Link || gap > slots {
            return;
        }
        for offset in 0..gap {
            let sequence = Sequence(first.0.wrapping_add(offset));
            out.stats.nacks += 1;
            self.reply(out, origin.child, Message::Nack { sequence });
        }
    }
}
