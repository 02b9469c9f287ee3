//! An aggregator as the kernel path sees it: what its groups have of the segments that one of the two completes.

use tributary_wire::frame::{Header, Part};
use tributary_wire::{ChildIndex, GroupId, Sequence};

use super::Node;
use super::group::{ChildEdge, Consequence, GroupTerms, SegmentState};
use super::port::{PortId, Role};
use crate::Time;
use crate::payloads::Payloads;

/// What the kernel path may ask an aggregator.
#[derive(Clone, Copy, Debug)]
pub struct KernelPathView<'a> {
    node: &'a Node,
}

/// What the kernel path may tell an aggregator.
#[derive(Debug)]
pub struct KernelPathHandle<'a> {
    node: &'a mut Node,
}

impl Node {
    /// This aggregator as the kernel path reads it.
    #[must_use]
    pub fn kernel_path(&self) -> KernelPathView<'_> {
        KernelPathView { node: self }
    }

    /// This aggregator as the kernel path hands segments over to it.
    #[must_use]
    pub fn kernel_path_mut(&mut self) -> KernelPathHandle<'_> {
        KernelPathHandle { node: self }
    }
}

impl<'a> KernelPathView<'a> {
    /// The group of a link, to a child or to the parent.
    #[must_use]
    pub fn group_of_link(self, port: PortId) -> Option<GroupId> {
        self.group_of_child(port).or_else(|| self.group_of_parent(port))
    }

    /// The group of a child's link.
    #[must_use]
    pub fn group_of_child(self, port: PortId) -> Option<GroupId> {
        match self.node.outputs.role(port) {
            Role::Child { group, .. } => Some(group),
            _ => None,
        }
    }

    /// The group of the link to a parent.
    #[must_use]
    pub fn group_of_parent(self, port: PortId) -> Option<GroupId> {
        match self.node.outputs.role(port) {
            Role::Parent { group } => Some(group),
            _ => None,
        }
    }

    /// The terms of a group whose segments the kernel path may complete: this aggregator is its root or exchanges
    /// datagrams with its parent, every child has joined and none has left, and results go nowhere but to children.
    #[must_use]
    pub fn terms(self, group: GroupId) -> Option<GroupTerms> {
        self.node.groups.get(group)?.kernel_terms()
    }

    /// The children of a group that have links, in their order.
    pub fn child_edges(self, group: GroupId) -> impl Iterator<Item = ChildEdge> + 'a {
        self.node.groups.get(group).into_iter().flat_map(|group| group.child_edges())
    }

    /// The segments in a group's slots.
    pub fn segments(self, group: GroupId) -> impl Iterator<Item = (Sequence, SegmentState)> + 'a {
        self.node.groups.get(group).into_iter().flat_map(|group| group.segments())
    }

    /// What a group's slots have of a segment.
    #[must_use]
    pub fn segment_state(self, group: GroupId, sequence: Sequence) -> SegmentState {
        let group = self.node.groups.get(group);
        group.map_or(SegmentState::Absent, |group| group.segment_state(sequence))
    }

    /// A child's header for a contribution that the kernel path has gathered.
    #[must_use]
    pub fn request_header(self, group: GroupId, child: ChildIndex, part: Part) -> Option<Header> {
        Some(self.node.groups.get(group)?.request_header(child, part))
    }
}

impl KernelPathHandle<'_> {
    /// Takes the result of a segment that the kernel path has completed, with the newest attempt of each child. It
    /// was sent from there; this aggregator answers repeats with it. A segment whose result is here, or was, is
    /// left alone.
    pub fn take_result(
        self,
        group: GroupId,
        part: &Part,
        attempts: &[u8],
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        if let Some(group) = self.node.groups.get_mut(group) {
            group.take_result(part, attempts.iter().copied(), payload, payloads);
        }
    }

    /// Takes over a segment that the kernel path has folded and sent to the parent, with the newest attempt of each
    /// child. A segment whose result is here, or was, is left alone.
    pub fn take_forwarded(
        self,
        group: GroupId,
        part: &Part,
        attempts: &[u8],
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        if let Some(group) = self.node.groups.get_mut(group) {
            group.take_forwarded(part, attempts, payload, payloads);
        }
    }

    /// Sends what [`Self::take_forwarded`] took over to the parent, again until the result comes.
    pub fn send_forwarded(self, now: Time, id: GroupId, sequence: Sequence) {
        if self.node.groups.get(id).is_some() {
            let sent = self.node.advance(id, |group, out, _| {
                group.send_forwarded(out, now, sequence)?;
                Ok(Consequence::None)
            });
            debug_assert_eq!(sent, Ok(()), "what the parent is sent is no frame of a peer");
        }
    }

    /// Takes note that the kernel path has completed a segment, and no longer has its result, because every child
    /// has had it. What was contributed to it here is dropped.
    pub fn skip_segment(self, group: GroupId, part: &Part, payloads: &mut impl Payloads) {
        if let Some(group) = self.node.groups.get_mut(group) {
            group.skip_segment(part, payloads);
        }
    }
}
