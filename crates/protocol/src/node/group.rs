//! One group, as one node serves it.

use alloc::boxed::Box;
use core::ops::Range;

use tributary_wire::frame::{Edge, Header, Message, Part, Subscription, Version};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, Sequence};

use super::external_receiver::ExternalReceiver;
use super::multicast::Multicast;
use super::slots::Slots;
use super::stream::GroupStream;
use super::{FrameError, GroupConfig, ParentConfig, PortId};
use crate::liveness::NodeLiveness;
use crate::payloads::{Arena, ArenaId};
use crate::recovery::LowerEnd;
use crate::{Carrier, Time};

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) epoch: Epoch,
    pub(super) frame_version: Version,
    pub(super) children: Box<[Child]>,
    pub(super) parent: Option<ParentConfig>,
    pub(super) parent_liveness: NodeLiveness,
    /// How many groups this node had seen lose a node when it last heard of the parent.
    pub(super) losses_at_parent_frame: u64,
    /// When the children that have not joined are given up; none once all have joined.
    pub(super) join_by: Option<Time>,
    /// For segments.
    pub(super) slots: Slots,
    /// Its state in streaming; none if it may not stream.
    pub(super) stream: Option<GroupStream>,
    /// How many children have left.
    pub(super) left_count: u16,
    /// Loss recovery of requests on their way up.
    pub(super) upward: LowerEnd,
    pub(super) multicast: Option<Multicast>,
    /// The group's external receiver; at the root only, if there is one.
    pub(super) external_receiver: Option<ExternalReceiver>,
    /// The earliest segment whose result is not here.
    floor: Sequence,
}

/// Whether a part travels as a segment or as a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// As a segment, through the group's own slots.
    Segment,
    /// As a chunk, through the tree's stream slots.
    Chunk,
}

impl PartKind {
    pub(super) fn upward(self, part: Part) -> Message {
        match self {
            Self::Segment => Message::Request(part),
            Self::Chunk => Message::Chunk(part),
        }
    }

    pub(super) fn downward(self, part: Part) -> Message {
        match self {
            Self::Segment => Message::Result(part),
            Self::Chunk => Message::ChunkResult(part),
        }
    }
}

#[derive(Debug)]
pub(super) struct Child {
    pub(super) capability: Capability,
    pub(super) members: Range<EndpointId>,
    pub(super) is_node: bool,
    /// Its link; none before it has joined, and after it has left and closed its link.
    pub(super) port: Option<PortId>,
    pub(super) has_joined: bool,
    pub(super) has_left: bool,
    /// Who at or below it receives multicast.
    pub(super) subscription: Subscription,
    /// The number after the highest it has sent.
    pub(super) next: Sequence,
}

impl Group {
    pub(super) fn new(config: GroupConfig, join_by: Time, losses: u64) -> Self {
        let children: Box<[Child]> = config
            .children
            .into_iter()
            .map(|child| Child {
                capability: child.capability,
                members: child.members,
                is_node: child.is_node,
                port: None,
                has_joined: false,
                has_left: false,
                subscription: Subscription::Nobody,
                next: Sequence::FIRST,
            })
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

    /// Advances the floor over results that are here now.
    pub(super) fn advance_floor(&mut self) {
        while self.slots.is_answered(self.floor) {
            self.floor = self.floor.next();
        }
    }

    pub(super) fn floor(&self) -> Sequence {
        self.floor
    }

    /// Skips what lies so far before a segment with a result that every child has had it.
    pub(super) fn skip_floor(&mut self, answered: Sequence) {
        let slots = self.slots.len() as u32;
        let distance = answered.distance_from(self.floor);
        if (slots..1 << 31).contains(&distance) {
            self.floor = Sequence(answered.0.wrapping_sub(slots));
        }
    }

    /// How many numbers before `sequence` the earliest segment without a result lies; 0 if none
    /// does.
    pub(super) fn behind(&self, sequence: Sequence) -> u16 {
        let behind = sequence.distance_from(self.floor);
        // A distance of 2^31 or more means that the floor lies after the sequence.
        if behind < 1 << 31 { u16::try_from(behind).unwrap_or(u16::MAX) } else { 0 }
    }

    pub(super) fn osos(&self) -> u16 {
        self.slots.window()
    }

    /// The most frames that an honest peer can cause to be queued at one of the group's ports.
    pub(super) fn outbox_frames(&self) -> u16 {
        let streamed = self.stream.as_ref().map_or(0, GroupStream::outbox_frames);
        self.arena().slots + streamed
    }

    pub(super) fn arena(&self) -> Arena {
        self.slots.arena(self.children.len() as u16)
    }

    /// The slots that segments, or chunks, lie in, and the children that fill them.
    ///
    /// # Panics
    /// For chunks, if the group does not have the stream lock.
    pub(super) fn window(&mut self, kind: PartKind) -> (&mut Slots, &[Child]) {
        let slots = match kind {
            PartKind::Segment => &mut self.slots,
            PartKind::Chunk => {
                let stream = self.stream.as_mut().expect("chunks come to groups that may stream");
                &mut stream
                    .active
                    .as_mut()
                    .expect("chunks are admitted while the group has the lock")
                    .slots
            }
        };
        (slots, &self.children)
    }

    /// What carries a contribution to the parent. Chunks never travel by datagram.
    pub(super) fn carrier_upward(&self, kind: PartKind, part: &Part) -> Carrier {
        match kind {
            PartKind::Segment => self.upward.carrier(part.shape.bytes()),
            PartKind::Chunk => Carrier::Link,
        }
    }

    /// The first member at or below this node.
    pub(super) fn first_member(&self) -> EndpointId {
        self.children[0].members.start
    }

    /// Whether a member is at or below this node. At the root: whether it exists.
    pub(super) fn has_member(&self, member: EndpointId) -> bool {
        self.children.iter().any(|child| child.members.contains(&member))
    }

    pub(super) fn header_to_child(&self, child: ChildIndex, message: Message) -> Header {
        let capability = self.children[usize::from(child.0)].capability;
        Header { edge: self.edge(child, capability), message }
    }

    pub(super) fn header_to_parent(&self, message: Message) -> Option<(PortId, Header)> {
        let parent = self.parent.as_ref()?;
        let edge = self.edge(parent.child, parent.capability);
        Some((parent.port, Header { edge, message }))
    }

    /// One of the group's edges.
    pub(super) fn edge(&self, child: ChildIndex, capability: Capability) -> Edge {
        let &Self { id: group, epoch, frame_version: version, .. } = self;
        Edge { group, epoch, child, capability, version }
    }

    /// Checks that a frame comes from the child.
    pub(super) fn check_edge(&self, header: &Header, child: ChildIndex) -> Result<(), FrameError> {
        let granted = self.edge(child, self.children[usize::from(child.0)].capability);
        check_edge(&header.edge, &granted)
    }

    /// Checks that a frame comes from the parent.
    pub(super) fn check_parent_edge(&self, header: &Header) -> Result<(), FrameError> {
        let parent = self.parent.as_ref().expect("only a group with a parent has a parent port");
        check_edge(&header.edge, &self.edge(parent.child, parent.capability))
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
