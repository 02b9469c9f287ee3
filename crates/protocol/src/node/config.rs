//! Configuration of an aggregator: its limits, and its part of each group.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use tributary_wire::control::{GroupInstall, StreamCapacity};
use tributary_wire::frame::{Version, Versions};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, TreeId};

use super::group::slots_for;
use super::port::PortId;
use crate::StreamTerms;
use crate::payloads::{Arena, ArenaId};

/// An aggregator's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// The versions of frames that it speaks.
    pub frame_versions: Versions,
    /// Children at most in one group.
    pub radix_max: u16,
    /// Outstanding operations at most, over all groups.
    pub osos_max: u32,
    /// Groups at most; also the bound on group ids.
    pub groups_max: u32,
    /// Longest segment.
    pub payload_max_bytes: u32,
    /// How long the children of a new group may take to join.
    pub join_timeout_ns: u64,
    /// What streams may use.
    pub streams: StreamLimits,
}

/// Limits of an aggregator's streams. Per tree it has slots for `window_max` chunks in flight from as many
/// children as the aggregator's radix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Trees that may stream; also the bound on tree ids. Zero for no streams at all.
    pub trees: u16,
    /// Chunks in flight at most.
    pub window_max: u16,
    /// Longest chunk.
    pub chunk_bytes_max: u32,
}

impl StreamLimits {
    /// No streams.
    pub const NONE: Self = Self { trees: 0, window_max: 1, chunk_bytes_max: 0 };

    /// What the aggregator tells the manager that it can stream; none if nothing.
    #[must_use]
    pub fn capacity(&self) -> Option<StreamCapacity> {
        let Self { trees, window_max: window, chunk_bytes_max: chunk_bytes } = *self;
        let terms_max = StreamTerms { chunk_bytes, window };
        (trees > 0).then_some(StreamCapacity { trees, terms_max })
    }

    /// The memory that one tree's streams need on an aggregator of this radix.
    #[must_use]
    pub fn arena(&self, tree: TreeId, radix: u16) -> Arena {
        Arena {
            id: ArenaId::Stream(tree),
            slots: slots_for(self.window_max),
            children: radix,
            payload_max_bytes: self.chunk_bytes_max,
        }
    }
}

/// An aggregator's part of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The layout of its frames.
    pub frame_version: Version,
    /// Segments in flight at most.
    pub osos: u16,
    /// Longest segment.
    pub payload_max_bytes: u32,
    /// Children in reduction order.
    pub children: Vec<ChildConfig>,
    /// The edge to the parent; none at the root.
    pub parent: Option<ParentConfig>,
    /// What it may stream; none if nothing.
    pub stream: Option<StreamConfig>,
}

impl GroupConfig {
    /// Converts the manager's order. `upward` is the link to the parent that the driver has opened.
    ///
    /// # Panics
    /// If the order names a parent and there is no link, or the other way round.
    #[must_use]
    pub fn of_order(order: GroupInstall, upward: Option<PortId>) -> Self {
        assert_eq!(
            order.parent.is_some(),
            upward.is_some(),
            "a link is given if the order names a parent, and only then"
        );
        let children = order.children.into_iter().map(|child| ChildConfig {
            capability: child.capability,
            members: child.members_first..child.members_end,
            is_node: child.is_node,
        });
        let parent = order.parent.zip(upward).map(|(parent, port)| ParentConfig {
            name: parent.address.tcp.into(),
            port,
            child: parent.child,
            capability: parent.capability,
        });
        let stream =
            order.stream.map(|stream| StreamConfig { tree: stream.tree, terms: stream.terms });
        Self {
            group: order.group,
            epoch: order.epoch,
            frame_version: order.frame_version,
            osos: order.osos,
            payload_max_bytes: order.payload_max_bytes,
            children: children.collect(),
            parent,
            stream,
        }
    }
}

/// Stream terms of a group on this aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// The tree whose lock the group needs to stream. All groups of one tree agree on which of two
    /// aggregators is above the other.
    pub tree: TreeId,
    /// Its chunks.
    pub terms: StreamTerms,
}

/// One child of an aggregator in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildConfig {
    /// What the child has to show.
    pub capability: Capability,
    /// The members at or below it.
    pub members: Range<EndpointId>,
    /// Whether it is an aggregation node, so that losing it means more than losing a member.
    pub is_node: bool,
}

/// An aggregator's edge to its parent in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentConfig {
    /// Which aggregator it is, in words of the driver: equal in all groups in which it is the same one.
    pub name: Box<str>,
    /// An open link to the parent, used for nothing else.
    pub port: PortId,
    /// This aggregator's place among the parent's children.
    pub child: ChildIndex,
    /// What to show there.
    pub capability: Capability,
}

/// Why an aggregator can't take part in a group. The manager is told; nothing of the group is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Too few outstanding operations are free.
    #[error("needs {needed} outstanding operations, {free} of {max} are free")]
    OsosExhausted {
        /// Asked for.
        needed: u16,
        /// Free now.
        free: u32,
        /// The aggregator's limit.
        max: u32,
    },
    /// More children than the aggregator's radix.
    #[error("needs {needed} children, the radix is {radix_max}")]
    RadixExceeded {
        /// Asked for.
        needed: usize,
        /// The aggregator's limit.
        radix_max: u16,
    },
    /// Longer segments than the aggregator holds.
    #[error("needs segments of {needed_bytes} bytes, the limit is {max_bytes}")]
    PayloadTooLong {
        /// Asked for.
        needed_bytes: u32,
        /// The aggregator's limit.
        max_bytes: u32,
    },
    /// Frames of a version that the aggregator does not speak.
    #[error("needs frames of version {needed}, the aggregation node speaks {spoken}")]
    OtherVersion {
        /// Asked for.
        needed: Version,
        /// What it speaks.
        spoken: Versions,
    },
    /// A group id beyond the table.
    #[error("group id {group} is not below the limit of {groups_max}")]
    GroupIdTooLarge {
        /// Asked for.
        group: GroupId,
        /// The aggregator's limit.
        groups_max: u32,
    },
    /// The id is in use.
    #[error("group {group} is already installed, with epoch {epoch}")]
    GroupInUse {
        /// Asked for.
        group: GroupId,
        /// The incarnation that has it.
        epoch: Epoch,
    },
    /// No child, no outstanding operation, an empty segment or an empty member range.
    #[error(
        "a group needs a child, an outstanding operation, a payload, and members below each child"
    )]
    Empty,
    /// More outstanding operations than slots can be numbered.
    #[error("{needed} outstanding operations exceed the {max} a group may have")]
    TooManyOsos {
        /// Asked for.
        needed: u16,
        /// The limit.
        max: u16,
    },
    /// Streams in a tree that the aggregator has no stream slots for.
    #[error("streams in tree {tree}, this aggregation node has stream slots for {trees} trees")]
    TreeIdTooLarge {
        /// Asked for.
        tree: TreeId,
        /// The aggregator's limit.
        trees: u16,
    },
    /// Larger chunks than the aggregator holds, or more of them, or none.
    #[error(
        "streams {window} chunks of {chunk_bytes} bytes, the limits are {window_max} and {chunk_bytes_max}"
    )]
    StreamTooWide {
        /// Chunks in flight asked for.
        window: u16,
        /// Their length.
        chunk_bytes: u32,
        /// The aggregator's limit.
        window_max: u16,
        /// The aggregator's limit.
        chunk_bytes_max: u32,
    },
    /// The link to the parent is already in use.
    #[error("port {port:?} already serves another group")]
    PortInUse {
        /// The port.
        port: PortId,
    },
}
