//! One group, as one aggregator serves it: the machine that takes the frames of its children and its parent.
//!
//! A group knows its own edges, slots and streams, and puts what it has to say into [`Outputs`]. It knows neither
//! other groups, nor the stream lock that they take turns with, nor how it is failed: a message that it cannot
//! survive is a [`GroupError::Failed`], and the aggregator does the rest.

mod arrivals;
mod child;
mod contributions;
mod datagrams;
mod error;
mod external_receiver;
mod frames;
mod kernel_path;
mod members;
mod multicast;
mod questions;
mod results;
mod slot;
mod slots;
mod stream;
mod streaming;
mod subscriptions;
mod waits;

use alloc::boxed::Box;

use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Message, Part, Version};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, Sequence, TreeId};

use super::config::{GroupConfig, ParentConfig};
use super::error::FrameError;
use super::outputs::Outputs;
use super::port::PortId;
use crate::liveness::NodeLiveness;
use crate::payloads::{Arena, ArenaId};
use crate::recovery::LowerEnd;
use crate::{Carrier, Time};

pub use kernel_path::{ChildEdge, GroupTerms, ParentEdge, SegmentState};
pub use multicast::MulticastTerms;
pub use waits::{Wait, WaitsFor};

pub(super) use error::GroupError;
pub(super) use frames::{Consequence, NodeState};
pub(super) use slots::{Origin, Slots, slots_for};

use child::Child;
use external_receiver::ExternalReceiver;
use multicast::Multicast;
use stream::GroupStream;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Group {
    id: GroupId,
    epoch: Epoch,
    frame_version: Version,
    children: Box<[Child]>,
    parent: Option<ParentConfig>,
    parent_liveness: NodeLiveness,
    /// How many groups this aggregator had seen lose an aggregator when it last heard of the parent.
    losses_at_parent_frame: u64,
    /// When the children that have not joined are given up; none once all have joined.
    join_by: Option<Time>,
    /// For segments.
    slots: Slots,
    /// Its state in streaming; none if it may not stream.
    stream: Option<GroupStream>,
    /// How many children have left.
    left_count: u16,
    /// Loss recovery of requests on their way up.
    upward: LowerEnd,
    multicast: Option<Multicast>,
    /// The group's external receiver; at the root only, if there is one.
    external_receiver: Option<ExternalReceiver>,
    /// The earliest segment whose result is not here.
    floor: Sequence,
}

/// Whether a part travels as a segment or as a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    /// As a segment, through the group's own slots.
    Segment,
    /// As a chunk, through the tree's stream slots.
    Chunk,
}

impl PartKind {
    fn upward(self, part: Part) -> Message {
        match self {
            Self::Segment => Message::Request(part),
            Self::Chunk => Message::Chunk(part),
        }
    }

    fn downward(self, part: Part) -> Message {
        match self {
            Self::Segment => Message::Result(part),
            Self::Chunk => Message::ChunkResult(part),
        }
    }
}

impl Group {
    pub(super) fn new(config: GroupConfig, join_by: Time, losses: u64) -> Self {
        let children: Box<[Child]> = config
            .children
            .into_iter()
            .map(|child| Child::new(child.capability, child.members, child.is_node))
            .collect();
        let arena = ArenaId::Group(config.group);
        let slots = Slots::new(arena, config.osos, config.payload_max_bytes, children.len());
        let upward = LowerEnd::new(slots.len());
        Self {
            id: config.group,
            epoch: config.epoch,
            frame_version: config.frame_version,
            stream: config.stream.map(|stream| GroupStream::new(stream, children.len())),
            children,
            parent: config.parent,
            parent_liveness: NodeLiveness::default(),
            losses_at_parent_frame: losses,
            join_by: Some(join_by),
            slots,
            left_count: 0,
            upward,
            multicast: None,
            external_receiver: None,
            floor: Sequence::FIRST,
        }
    }

    pub(super) fn id(&self) -> GroupId {
        self.id
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn osos(&self) -> u16 {
        self.slots.window()
    }

    pub(super) fn arena(&self) -> Arena {
        self.slots.arena(self.children.len() as u16)
    }

    /// The name of the aggregator above; none at the root.
    pub(super) fn parent_name(&self) -> Option<&str> {
        self.parent.as_ref().map(|parent| &*parent.name)
    }

    /// The tree in which it may stream.
    pub(super) fn stream_tree(&self) -> Option<TreeId> {
        Some(self.stream.as_ref()?.tree)
    }

    /// When it is failed unless all children have joined; none once they have.
    pub(super) fn join_by(&self) -> Option<Time> {
        self.join_by
    }

    /// The group's end, for which its first member below here is at fault.
    pub(super) fn abort(&self, reason: AbortReason) -> Abort {
        Abort { reason, at_fault: self.first_member() }
    }

    /// The most frames that an honest peer can cause to be queued at one of the group's ports.
    fn outbox_frames(&self) -> u16 {
        let streamed = self.stream.as_ref().map_or(0, GroupStream::outbox_frames);
        self.arena().slots + streamed
    }

    /// Advances the floor over results that are here now.
    fn advance_floor(&mut self) {
        while self.slots.is_answered(self.floor) {
            self.floor = self.floor.next();
        }
    }

    /// Skips what lies so far before a segment with a result that every child has had it.
    fn skip_floor(&mut self, answered: Sequence) {
        let slots = self.slots.len() as u32;
        let distance = answered.distance_from(self.floor);
        if (slots..1 << 31).contains(&distance) {
            self.floor = Sequence(answered.0.wrapping_sub(slots));
        }
    }

    /// How many numbers before `sequence` the earliest segment without a result lies; 0 if none
    /// does.
    fn behind(&self, sequence: Sequence) -> u16 {
        let behind = sequence.distance_from(self.floor);
        // A distance of 2^31 or more means that the floor lies after the sequence.
        if behind < 1 << 31 { u16::try_from(behind).unwrap_or(u16::MAX) } else { 0 }
    }

    /// The slots that segments, or chunks, lie in, and the children that fill them.
    ///
    /// # Panics
    /// For chunks, if the group does not have the stream lock.
    fn window(&mut self, kind: PartKind) -> (&mut Slots, &[Child]) {
        let slots = match kind {
            PartKind::Segment => &mut self.slots,
            PartKind::Chunk => {
                let stream = self.stream.as_mut().expect("chunks come to groups that may stream");
                stream.slots_mut().expect("chunks are admitted while the group has the lock")
            }
        };
        (slots, &self.children)
    }

    /// What carries a contribution to the parent. Chunks never travel by datagram.
    fn carrier_upward(&self, kind: PartKind, part: &Part) -> Carrier {
        match kind {
            PartKind::Segment => self.upward.carrier(part.shape.bytes()),
            PartKind::Chunk => Carrier::Link,
        }
    }

    fn child(&self, child: ChildIndex) -> &Child {
        &self.children[usize::from(child.0)]
    }

    fn child_mut(&mut self, child: ChildIndex) -> &mut Child {
        &mut self.children[usize::from(child.0)]
    }

    /// The first member at or below this aggregator.
    fn first_member(&self) -> EndpointId {
        self.children[0].members.start
    }

    /// Whether a member is at or below this aggregator. At the root: whether it exists.
    fn has_member(&self, member: EndpointId) -> bool {
        self.children.iter().any(|child| child.members.contains(&member))
    }

    fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    fn parent_port(&self) -> Option<PortId> {
        Some(self.parent.as_ref()?.port)
    }

    fn header_to_child(&self, child: ChildIndex, message: Message) -> Header {
        Header { edge: self.edge(child, self.child(child).capability), message }
    }

    fn header_to_parent(&self, message: Message) -> Option<(PortId, Header)> {
        let parent = self.parent.as_ref()?;
        let edge = self.edge(parent.child, parent.capability);
        Some((parent.port, Header { edge, message }))
    }

    /// One of the group's edges.
    fn edge(&self, child: ChildIndex, capability: Capability) -> Edge {
        let &Self { id: group, epoch, frame_version: version, .. } = self;
        Edge { group, epoch, child, capability, version }
    }

    /// Checks that a frame comes from the child.
    fn check_edge(&self, header: &Header, child: ChildIndex) -> Result<(), FrameError> {
        check_edge(&header.edge, &self.edge(child, self.child(child).capability))
    }

    /// Checks that a frame comes from the parent.
    fn check_parent_edge(&self, header: &Header) -> Result<(), FrameError> {
        let parent = self.parent.as_ref().expect("only a group with a parent has a parent port");
        check_edge(&header.edge, &self.edge(parent.child, parent.capability))
    }

    /// Sends the parent a message without payload. `false` if there is a parent and its link takes no more.
    #[must_use]
    fn tell_parent(&self, out: &mut Outputs, message: Message) -> bool {
        let told = self.header_to_parent(message);
        told.is_none_or(|(port, header)| out.transmit(port, header, None))
    }
}

fn check_edge(got: &Edge, granted: &Edge) -> Result<(), FrameError> {
    let group = granted.group;
    if got == granted {
        Ok(())
    } else if got.group != group || got.epoch != granted.epoch {
        Err(FrameError::UnknownGroup { group: got.group, epoch: got.epoch })
    } else if got.version != granted.version {
        Err(FrameError::WrongVersion { group, got: got.version, granted: granted.version })
    } else if got.child != granted.child {
        Err(FrameError::WrongPort)
    } else {
        Err(FrameError::Forged { group })
    }
}
