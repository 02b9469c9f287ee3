//! Results that go to a group's multicast address: the root sends them, other nodes receive them.

use tributary_wire::frame::{EVERYONE, Edge, Header, Message, Part, RetransmitState, Subscription};
use tributary_wire::{Capability, ChildIndex, GroupId};

use super::distribution::Answer;
use super::group::{Group, PartKind};
use super::{Event, FrameError, MulticastTerms, Node, Transmit};
use crate::multicast::MulticastReceiver;
use crate::payloads::Payloads;
use crate::{Carrier, Reachability, Time};

/// Results sent without a subscriber, after which the root stops multicasting.
const UNRECEIVED_MAX: u8 = 64;

/// A group's multicast at one of its nodes.
#[derive(Debug)]
pub(super) struct Multicast {
    capability: Capability,
    receiver: MulticastReceiver,
    /// Results sent since there was a subscriber; none once the root has stopped.
    unreceived: Option<u8>,
    longest_bytes: u32,
}

impl Node {
    /// Lets a group's results travel by multicast. The root sends them, in datagrams of
    /// `capability`, to the address that the driver knows; other nodes receive them. Segments
    /// longer than `segment_max_bytes` are not multicast.
    ///
    /// To be called right after the install wherever the manager grants an address. A node that can
    /// neither send nor receive multicast is told with a `segment_max_bytes` of 0, because members
    /// below it may still receive it and go on with results that this node does not have yet.
    ///
    /// A subscribed child gets a reliable copy only when it repeats its request. A lost multicast
    /// costs it a timeout; the others cost the node nothing.
    pub fn use_multicast(
        &mut self,
        group: GroupId,
        capability: Capability,
        segment_max_bytes: u32,
    ) {
        let Some(Some(found)) = self.groups.get_mut(group.0 as usize) else { return };
        found.slots.let_be_overtaken();
        found.multicast = Some(Multicast {
            capability,
            receiver: MulticastReceiver::new(capability),
            unreceived: Some(0),
            longest_bytes: segment_max_bytes,
        });
    }

    /// The next frame for a group's multicast address. It is removed at once.
    pub fn poll_multicast(&mut self) -> Option<(GroupId, Transmit)> {
        self.outputs.poll_multicast()
    }

    /// Takes a frame that came by multicast.
    ///
    /// # Errors
    /// If it is not a result of a group that this node serves below another node, or does not show
    /// the group's capability. It is dropped, and nothing else happens.
    pub fn handle_multicast(
        &mut self,
        now: Time,
        header: &Header,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let Edge { group: id, epoch, .. } = header.edge;
        let unknown = FrameError::UnknownGroup { group: id, epoch };
        let found = self.groups.get(id.0 as usize).and_then(Option::as_ref).ok_or(unknown)?;
        let multicast = found.multicast.as_ref().ok_or(unknown)?;
        if found.epoch != epoch {
            return Err(unknown);
        }
        if header.edge != found.edge(EVERYONE, multicast.capability) {
            return Err(FrameError::Forged { group: id });
        }
        if found.parent.is_none() {
            // The root receives its own multicast.
            return Ok(());
        }
        let Message::Result(part) = header.message else { return Err(FrameError::WrongDirection) };
        let answer = Answer { now, carrier: Carrier::Multicast, part: &part };
        self.handle_result(id, PartKind::Segment, answer, payload, payloads)
    }

    /// Multicasts a result, if this is the root and multicast is in use.
    pub(super) fn multicast_result(&mut self, id: GroupId, slot_index: usize) {
        let group = self.group_mut(id);
        let Some(header) = group.multicast_header(slot_index) else { return };
        let body = (header.payload_bytes() > 0).then(|| group.slots.accumulator(slot_index));
        let has_subscriber = group.has_subscriber_below();
        let multicast =
            group.multicast.as_mut().expect("a group with a header for multicast has multicast");
        let mut gives_up = false;
        if let Some(unreceived) = &mut multicast.unreceived {
            *unreceived = if has_subscriber { 0 } else { *unreceived + 1 };
            gives_up = *unreceived > UNRECEIVED_MAX;
        }
        if gives_up {
            self.group_mut(id).multicast.as_mut().expect("seen above").unreceived = None;
            let reachability = Reachability::Unreachable;
            self.outputs.report(Event::Multicast { group: id, reachability });
            return;
        }
        self.outputs.multicast(id, header, body);
    }

    /// A child says who at or below it receives multicast.
    pub(super) fn handle_subscribed(
        &mut self,
        id: GroupId,
        child: ChildIndex,
        subscription: Subscription,
    ) {
        let group = self.group_mut(id);
        if group.multicast.is_none() {
            return;
        }
        let had_subscriber = group.has_subscriber_below();
        group.children[usize::from(child.0)].subscription = subscription;
        let has_subscriber = group.has_subscriber_below();
        let multicast = group.multicast.as_mut().expect("seen above");
        if group.parent.is_none() {
            // There is a subscriber, so multicasting is worthwhile again.
            if has_subscriber && multicast.unreceived.replace(0).is_none() {
                self.outputs
                    .report(Event::Multicast { group: id, reachability: Reachability::Reachable });
            }
        } else if had_subscriber != has_subscriber && !multicast.receiver.is_subscribed() {
            self.announce_subscription(id);
        }
    }

    /// Notes how a result from above came, and tells the parent if that changes the subscription.
    pub(super) fn update_subscription(&mut self, id: GroupId, carrier: Carrier, part: &Part) {
        let Some(multicast) = &mut self.group_mut(id).multicast else { return };
        if multicast.receiver.on_result(carrier, part.retransmit.attempt).is_some() {
            self.announce_subscription(id);
        }
    }

    fn announce_subscription(&mut self, id: GroupId) {
        let group = self.group_mut(id);
        let is_subscribed =
            group.multicast.as_ref().is_some_and(|multicast| multicast.receiver.is_subscribed());
        let subscription = match group.has_subscriber_below() {
            _ if is_subscribed => Subscription::Here,
            true => Subscription::Below,
            false => Subscription::Nobody,
        };
        let Some((port, header)) = group.header_to_parent(Message::Subscribed(subscription)) else {
            return;
        };
        if !self.outputs.transmit(port, header, None) {
            self.outputs.stats.dropped += 1;
        }
    }
}

impl Group {
    fn has_subscriber_below(&self) -> bool {
        self.children.iter().any(|child| child.subscription != Subscription::Nobody)
    }

    /// Whether a child gets no copy of a result, because it is subscribed and repeats lost
    /// requests.
    pub(super) fn spares_copy(&self, slot_index: usize, child: ChildIndex) -> bool {
        let slot = &self.slots[slot_index];
        let (Some(multicast), Some(part)) = (&self.multicast, &slot.part) else { return false };
        let is_subscribed = self.children[usize::from(child.0)].subscription == Subscription::Here;
        // Only a child that sent its request by datagram repeats it.
        let repeats = slot.newest_attempt(child).carrier == Carrier::Datagram;
        #[cfg(feature = "planted-bugs")]
        let repeats = repeats || crate::planted::is_planted(crate::planted::Bug::SparedCopy);
        is_subscribed && repeats && multicast.carries(part)
    }

    fn multicast_header(&self, slot_index: usize) -> Option<Header> {
        let multicast = self.multicast.as_ref()?;
        let slot = &self.slots[slot_index];
        let mut part = slot.part?;
        if self.parent.is_some() || multicast.unreceived.is_none() || !multicast.carries(&part) {
            return None;
        }
        part.has_data = slot.has_data;
        part.retransmit = RetransmitState { attempt: 0, behind: self.behind(part.sequence) };
        let capability = multicast.capability;
        let edge = self.edge(EVERYONE, capability);
        Some(Header { edge, message: Message::Result(part) })
    }
}

impl Multicast {
    pub(super) fn terms(&self) -> MulticastTerms {
        MulticastTerms {
            capability: self.capability,
            longest_bytes: self.longest_bytes,
            unreceived: self.unreceived.unwrap_or(UNRECEIVED_MAX + 1),
        }
    }

    /// Whether a segment's result is for everybody and fits a datagram.
    fn carries(&self, part: &Part) -> bool {
        part.target.is_all() && part.shape.bytes() <= self.longest_bytes as usize
    }
}
