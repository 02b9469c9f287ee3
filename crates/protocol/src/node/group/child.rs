//! One child of a group, as one aggregator serves it.

use core::ops::Range;

use tributary_wire::frame::{Abort, AbortReason, Subscription};
use tributary_wire::{Capability, EndpointId, Sequence};

use crate::node::port::PortId;

#[derive(Debug)]
pub(in crate::node) struct Child {
    pub(super) capability: Capability,
    pub(super) members: Range<EndpointId>,
    pub(super) is_node: bool,
    /// Its link; none before it has joined, and after it has left and closed its link.
    pub(in crate::node) port: Option<PortId>,
    pub(super) has_joined: bool,
    pub(super) has_left: bool,
    /// Whether it, or a member below it, receives multicast.
    pub(super) subscription: Subscription,
    /// The number after the highest it has sent.
    pub(super) next: Sequence,
}

impl Child {
    /// A child that has not joined.
    pub(super) fn new(capability: Capability, members: Range<EndpointId>, is_node: bool) -> Self {
        Self {
            capability,
            members,
            is_node,
            port: None,
            has_joined: false,
            has_left: false,
            subscription: Subscription::Nobody,
            next: Sequence::FIRST,
        }
    }

    /// Whether it receives multicast itself.
    pub(super) fn is_subscribed(&self) -> bool {
        self.subscription == Subscription::Here
    }

    /// The end of the group, for which the child's first member is at fault.
    pub(super) fn abort(&self, reason: AbortReason) -> Abort {
        Abort { reason, at_fault: self.members.start }
    }
}
