//! Which children receive multicast, and what the parent is told of it.

use tributary_wire::frame::{Message, Part, Subscription};
use tributary_wire::{Capability, ChildIndex};

use super::Group;
use super::multicast::Multicast;
use crate::node::outputs::{Event, Outputs};
use crate::{Carrier, Reachability};

impl Group {
    /// Lets results travel by multicast, in datagrams of `capability`.
    pub(in crate::node) fn use_multicast(
        &mut self,
        capability: Capability,
        segment_max_bytes: u32,
    ) {
        self.slots.allow_members_ahead();
        self.multicast = Some(Multicast::new(capability, segment_max_bytes));
    }

    /// A child says who at or below it receives multicast.
    pub(super) fn handle_subscribed(
        &mut self,
        out: &mut Outputs,
        child: ChildIndex,
        subscription: Subscription,
    ) {
        if self.multicast.is_none() {
            return;
        }
        let had_subscriber = self.has_subscriber_below();
        self.child_mut(child).subscription = subscription;
        let has_subscriber = self.has_subscriber_below();
        let is_root = self.is_root();
        let multicast = self.multicast.as_mut().expect("seen above");
        if is_root {
            // There is a subscriber, so multicasting is worthwhile again.
            if has_subscriber && multicast.resume() {
                let reachability = Reachability::Reachable;
                out.report(Event::Multicast { group: self.id, reachability });
            }
        } else if had_subscriber != has_subscriber && !multicast.is_subscribed() {
            self.announce_subscription(out);
        }
    }

    /// Notes how a result from above came, and tells the parent if that changes the subscription.
    pub(super) fn update_subscription(&mut self, out: &mut Outputs, carrier: Carrier, part: &Part) {
        let Some(multicast) = &mut self.multicast else { return };
        if multicast.on_result(carrier, part.retransmit.attempt) {
            self.announce_subscription(out);
        }
    }

    fn announce_subscription(&self, out: &mut Outputs) {
        let subscription = match &self.multicast {
            Some(multicast) if multicast.is_subscribed() => Subscription::Here,
            _ if self.has_subscriber_below() => Subscription::Below,
            _ => Subscription::Nobody,
        };
        let is_queued = self.tell_parent(out, Message::Subscribed(subscription));
        out.stats.dropped += u64::from(!is_queued);
    }

    pub(super) fn has_subscriber_below(&self) -> bool {
        self.children.iter().any(|child| child.subscription != Subscription::Nobody)
    }
}
