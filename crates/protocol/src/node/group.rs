//! One group, as one node serves it.

use alloc::boxed::Box;
use core::ops::Range;

use tributary_wire::frame::{Edge, Header, Hearing, Message, Part};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, Sequence};

use super::multicast::Multicast;
use super::outsider::Outsider;
use super::slots::Slots;
use super::stream::GroupStream;
use super::{FrameError, GroupConfig, ParentConfig, PortId};
use crate::payloads::{Arena, ArenaId};
use crate::recovery::LowerEnd;
use crate::{Carrier, Time};

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) epoch: Epoch,
    pub(super) children: Box<[Child]>,
    pub(super) parent: Option<ParentConfig>,
    /// When the children that are still missing are missed; none once all have joined.
    pub(super) join_by: Option<Time>,
    /// For segments.
    pub(super) slots: Slots,
    /// What it may stream, and how far that is; none if it may not.
    pub(super) stream: Option<GroupStream>,
    /// How many children have left.
    pub(super) left_count: u16,
    /// What is known of requests on their way up by datagram.
    pub(super) upward: LowerEnd,
    pub(super) multicast: Option<Multicast>,
    /// A process outside the group that results may go to; at the root, if at all.
    pub(super) outsider: Option<Outsider>,
    /// The earliest segment whose result is not here.
    floor: Sequence,
}

/// Which way a part goes through a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// As a segment, through the group's own slots.
    Segment,
    /// As a chunk, through the tree's stream slots.
    Chunk,
}

impl Course {
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
    /// Its link; none before it has joined, and none again once it has left and hung up.
    pub(super) port: Option<PortId>,
    pub(super) has_joined: bool,
    pub(super) has_left: bool,
    /// Who at or below it hears what is multicast.
    pub(super) hearing: Hearing,
    /// The number after the highest it has sent.
    pub(super) next: Sequence,
}

impl Group {
    pub(super) fn new(config: GroupConfig, join_by: Time) -> Self {
        let children: Box<[Child]> = config
            .children
            .into_iter()
            .map(|child| Child {
                capability: child.capability,
                members: child.members,
                port: None,
                has_joined: false,
                has_left: false,
                hearing: Hearing::Nobody,
                next: Sequence::FIRST,
            })
            .collect();
        let arena = ArenaId::Group(config.group);
        let slots = Slots::new(arena, config.osos, config.payload_max_bytes, children.len());
        let upward = LowerEnd::new(slots.len());
        Self {
            id: config.group,
            epoch: config.epoch,
            stream: config.stream.map(|stream| GroupStream::new(stream, children.len())),
            children,
            parent: config.parent,
            join_by: Some(join_by),
            slots,
            left_count: 0,
            upward,
            multicast: None,
            outsider: None,
            floor: Sequence::FIRST,
        }
    }

    /// Takes note that a segment's result is here now.
    pub(super) fn advance_floor(&mut self) {
        while self.slots.is_answered(self.floor) {
            self.floor = self.floor.next();
        }
    }

    /// How far before `sequence` the earliest segment lies whose result is not here; 0 if none does.
    pub(super) fn behind(&self, sequence: Sequence) -> u16 {
        let behind = sequence.distance_from(self.floor);
        // Beyond half of all numbers, the floor lies after the sequence.
        if behind < 1 << 31 { u16::try_from(behind).unwrap_or(u16::MAX) } else { 0 }
    }

    pub(super) fn osos(&self) -> u16 {
        self.slots.window()
    }

    /// Frames that one of its ports can honestly have queued.
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
    /// For chunks, if it isn't the group's turn to stream.
    pub(super) fn window(&mut self, course: Course) -> (&mut Slots, &[Child]) {
        let slots = match course {
            Course::Segment => &mut self.slots,
            Course::Chunk => {
                let stream = self.stream.as_mut().expect("chunks come to groups that may stream");
                &mut stream.held.as_mut().expect("chunks are let in while the lock is held").slots
            }
        };
        (slots, &self.children)
    }

    /// What carries a contribution to the parent. Chunks are longer than a datagram may be.
    pub(super) fn carrier_upward(&self, course: Course, part: &Part) -> Carrier {
        match course {
            Course::Segment => self.upward.carrier(part.shape.bytes()),
            Course::Chunk => Carrier::Link,
        }
    }

    /// The first member at or below this node.
    pub(super) fn first_member(&self) -> EndpointId {
        self.children[0].members.start
    }

    /// Whether a member is at or below this node. At the root that is whether it exists.
    pub(super) fn has_member(&self, member: EndpointId) -> bool {
        self.children.iter().any(|child| child.members.contains(&member))
    }

    pub(super) fn header_to_child(&self, child: ChildIndex, message: Message) -> Header {
        let capability = self.children[usize::from(child.0)].capability;
        Header { edge: Edge { group: self.id, epoch: self.epoch, child, capability }, message }
    }

    pub(super) fn header_to_parent(&self, message: Message) -> Option<(PortId, Header)> {
        let parent = self.parent.as_ref()?;
        let edge = Edge {
            group: self.id,
            epoch: self.epoch,
            child: parent.child,
            capability: parent.capability,
        };
        Some((parent.port, Header { edge, message }))
    }

    /// Whether a frame is the child's it claims to be.
    pub(super) fn check_edge(&self, header: &Header, child: ChildIndex) -> Result<(), FrameError> {
        let edge = &header.edge;
        if edge.group != self.id || edge.epoch != self.epoch {
            return Err(FrameError::UnknownGroup { group: edge.group, epoch: edge.epoch });
        }
        if edge.child != child {
            return Err(FrameError::WrongPort);
        }
        if edge.capability != self.children[usize::from(child.0)].capability {
            return Err(FrameError::Forged { group: self.id });
        }
        Ok(())
    }

    /// Whether a frame is the parent's.
    pub(super) fn check_parent_edge(&self, header: &Header) -> Result<(), FrameError> {
        let parent = self.parent.as_ref().expect("only a group with a parent has a parent port");
        let edge = &header.edge;
        if edge.group != self.id || edge.epoch != self.epoch {
            return Err(FrameError::UnknownGroup { group: edge.group, epoch: edge.epoch });
        }
        if edge.child != parent.child {
            return Err(FrameError::WrongPort);
        }
        if edge.capability != parent.capability {
            return Err(FrameError::Forged { group: self.id });
        }
        Ok(())
    }
}
