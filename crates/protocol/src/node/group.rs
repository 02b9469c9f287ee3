//! One group, as one node serves it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use tributary_wire::frame::{Edge, Header, Hearing, Message};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, Sequence};

use super::multicast::Multicast;
use super::slot::{Phase, Slot};
use super::{FrameError, GroupConfig, ParentConfig, PortId};
use crate::Time;
use crate::payloads::{Arena, ArenaId, Lane, Place};
use crate::recovery::LowerEnd;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) epoch: Epoch,
    pub(super) osos: u16,
    pub(super) payload_max_bytes: u32,
    pub(super) children: Box<[Child]>,
    pub(super) parent: Option<ParentConfig>,
    /// When the children that are still missing are missed; none once all have joined.
    pub(super) join_by: Option<Time>,
    pub(super) slots: Box<[Slot]>,
    /// How many children have left.
    pub(super) left_count: u16,
    /// What is known of requests on their way up by datagram.
    pub(super) upward: LowerEnd,
    pub(super) multicast: Option<Multicast>,
    /// The earliest segment whose result is not here.
    floor: Sequence,
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
        let slots = slots_for(config.osos);
        let slot_list: Vec<Slot> = (0..slots).map(|_| Slot::new(children.len())).collect();
        Self {
            id: config.group,
            epoch: config.epoch,
            osos: config.osos,
            payload_max_bytes: config.payload_max_bytes,
            children,
            parent: config.parent,
            join_by: Some(join_by),
            slots: slot_list.into_boxed_slice(),
            left_count: 0,
            upward: LowerEnd::new(usize::from(slots)),
            multicast: None,
            floor: Sequence::FIRST,
        }
    }

    /// Takes note that a segment's result is here now.
    pub(super) fn advance_floor(&mut self) {
        loop {
            let slot = &self.slots[self.slot_index(self.floor)];
            let is_done = slot.holds(self.floor) && slot.phase == Phase::Done;
            if !is_done && !slot.is_past(self.floor) {
                return;
            }
            self.floor = self.floor.next();
        }
    }

    /// How far before `sequence` the earliest segment lies whose result is not here; 0 if none does.
    pub(super) fn behind(&self, sequence: Sequence) -> u16 {
        let behind = sequence.distance_from(self.floor);
        // Beyond half of all numbers, the floor lies after the sequence.
        if behind < 1 << 31 { u16::try_from(behind).unwrap_or(u16::MAX) } else { 0 }
    }

    /// Group ids are unique on a node, so the arena can share the number.
    pub(super) fn arena_id(&self) -> ArenaId {
        ArenaId(self.id.0)
    }

    pub(super) fn arena(&self) -> Arena {
        Arena {
            id: self.arena_id(),
            slots: self.slots.len() as u16,
            children: self.children.len() as u16,
            payload_max_bytes: self.payload_max_bytes,
        }
    }

    pub(super) fn slot_index(&self, sequence: Sequence) -> usize {
        // The number of slots is a power of two, so this stays right when sequences wrap.
        sequence.0 as usize & (self.slots.len() - 1)
    }

    pub(super) fn accumulator(&self, slot: usize) -> Place {
        Place { arena: self.arena_id(), slot: slot as u16, lane: Lane::Accumulator }
    }

    pub(super) fn parked(&self, slot: usize, child: ChildIndex) -> Place {
        Place { arena: self.arena_id(), slot: slot as u16, lane: Lane::Parked(child) }
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

    /// Whether a slot's segment may be followed by the one that needs it to be complete.
    ///
    /// A result that is multicast may reach a member before it reaches this node. The member's
    /// next request then shows that the root had the segment complete, hence that every child here
    /// had contributed to it, and that nobody will ask this node for what lies `osos` before it.
    pub(super) fn is_spent(&self, slot: &Slot) -> bool {
        slot.phase == Phase::Done || (self.multicast.is_some() && slot.phase == Phase::Forwarded)
    }

    /// Whether a member may have this segment in flight: all it sent `osos` segments ago must be
    /// complete here, because it must be complete at the member.
    pub(super) fn has_credit(&self, sequence: Sequence) -> bool {
        let earlier = Sequence(sequence.0.wrapping_sub(u32::from(self.osos)));
        let slot = &self.slots[self.slot_index(earlier)];
        match slot.part {
            Some(_) => slot.holds(earlier) && self.is_spent(slot),
            // Never used: the group is still in its first segments.
            None => sequence.distance_from(Sequence::FIRST) < u32::from(self.osos),
        }
    }
}

/// Slots that `osos` segments in flight need: as many again for results still wanted by members
/// that lag, rounded up so that a wrapping sequence number keeps choosing the same slot.
pub(super) fn slots_for(osos: u16) -> u16 {
    (2 * osos).next_power_of_two()
}
