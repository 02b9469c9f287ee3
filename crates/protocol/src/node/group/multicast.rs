//! Multicast of a group's results at one of its aggregators: the root sends them, other aggregators receive them.

use tributary_wire::Capability;
use tributary_wire::frame::{Header, Part};

use crate::multicast::MulticastReceiver;
use crate::node::outputs::{Event, Outputs};
use crate::payloads::Place;
use crate::{Carrier, Reachability};

/// Results sent without a subscriber, after which the root stops multicasting.
const UNRECEIVED_MAX: u8 = 64;

/// A group's multicast at its root, as the kernel path has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastTerms {
    /// What results to the address show.
    pub capability: Capability,
    /// Longest result that goes there.
    pub longest_bytes: u32,
    /// Results sent since there was a subscriber.
    pub unreceived: u8,
}

/// A group's multicast at one of its aggregators.
#[derive(Debug)]
pub(super) struct Multicast {
    capability: Capability,
    receiver: MulticastReceiver,
    /// Results sent since there was a subscriber; none once the root has stopped.
    unreceived: Option<u8>,
    longest_bytes: u32,
}

impl Multicast {
    pub(super) fn new(capability: Capability, longest_bytes: u32) -> Self {
        let receiver = MulticastReceiver::new(capability);
        Self { capability, receiver, unreceived: Some(0), longest_bytes }
    }

    /// What its datagrams show.
    pub(super) fn capability(&self) -> Capability {
        self.capability
    }

    pub(super) fn terms(&self) -> MulticastTerms {
        MulticastTerms {
            capability: self.capability,
            longest_bytes: self.longest_bytes,
            unreceived: self.unreceived.unwrap_or(UNRECEIVED_MAX + 1),
        }
    }

    /// Whether a segment's result is for everybody and fits a datagram.
    pub(super) fn carries(&self, part: &Part) -> bool {
        part.target.is_all() && part.shape.bytes() <= self.longest_bytes as usize
    }

    /// Whether the root multicasts a segment's result.
    pub(super) fn sends(&self, part: &Part) -> bool {
        self.unreceived.is_some() && self.carries(part)
    }

    /// Sends a result of the root, unless there has been no subscriber for too long.
    pub(super) fn send(
        &mut self,
        out: &mut Outputs,
        header: Header,
        body: Option<Place>,
        has_subscriber: bool,
    ) {
        let group = header.edge.group;
        let before = self.unreceived.unwrap_or(UNRECEIVED_MAX);
        let unreceived = if has_subscriber { 0 } else { before + 1 };
        self.unreceived = (unreceived <= UNRECEIVED_MAX).then_some(unreceived);
        if self.unreceived.is_some() {
            out.multicast(group, header, body);
        } else {
            out.report(Event::Multicast { group, reachability: Reachability::Unreachable });
        }
    }

    /// Lets the root multicast again. True if it had stopped.
    pub(super) fn resume(&mut self) -> bool {
        self.unreceived.replace(0).is_none()
    }

    /// Whether multicast arrives here.
    pub(super) fn is_subscribed(&self) -> bool {
        self.receiver.is_subscribed()
    }

    /// A result has come. True if multicast has begun or ceased to arrive.
    pub(super) fn on_result(&mut self, carrier: Carrier, attempt: u8) -> bool {
        self.receiver.on_result(carrier, attempt).is_some()
    }
}
