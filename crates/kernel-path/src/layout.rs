//! The tables as they lie in memory that the program in the kernel shares: `ebpf/tables.h`, mirrored.

use tributary_wire::control::KernelState;
use tributary_wire::frame::Version;

/// Most children of a group. By this and the window the manager tells members whether their group is taken.
pub const CHILDREN_MAX: usize = KernelState::CHILDREN_MAX;

/// The version of the frames that the program reads and writes: `FRAME_VERSION` of `frame.h`.
pub(crate) const FRAME_VERSION: Version = Version(2);

/// Longest segment.
pub const PAYLOAD_BYTES_MAX: usize = 1024;

/// Sums of floats up to which the program folds a segment itself.
pub const FLOAT_SUMS_MAX: usize = 448;

/// Groups at once.
pub const PLACES: usize = 64;

/// Slots of each group: twice its window, at most.
pub const SLOTS_PER_PLACE: usize = 2 * KernelState::OSOS_MAX as usize;

pub(crate) const SLOTS: usize = PLACES * SLOTS_PER_PLACE;

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Edge {
    pub(crate) capability: [u8; 16],
    pub(crate) peer_address: [u8; 4],
    pub(crate) own_address: [u8; 4],
    pub(crate) peer_port: [u8; 2],
    pub(crate) own_port: [u8; 2],
    pub(crate) next: u32,
}

/// All zero: none.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Multicast {
    pub(crate) edge: Edge,
    pub(crate) longest_bytes: u32,
    pub(crate) spared: u32,
    pub(crate) has_subscriber: u32,
    pub(crate) unreceived: u32,
}

/// All zero: none.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Parent {
    pub(crate) edge: Edge,
    pub(crate) child: u32,
    pub(crate) interface: u32,
    pub(crate) hardware: [u8; 12],
    pub(crate) reserved: u32,
    pub(crate) route: u64,
}

/// Of a route to a parent that is to be learnt.
pub(crate) const ROUTE_UNKNOWN: u64 = 0;

#[repr(C)]
pub(crate) struct Place {
    pub(crate) is_on: u32,
    pub(crate) group: u32,
    pub(crate) epoch: u32,
    pub(crate) window: u32,
    pub(crate) first_slot: u32,
    pub(crate) slot_mask: u32,
    pub(crate) children: u32,
    pub(crate) payload_max_bytes: u32,
    pub(crate) floor: u32,
    pub(crate) may_be_overtaken: u32,
    pub(crate) edges: [Edge; CHILDREN_MAX],
    pub(crate) multicast: Multicast,
    pub(crate) parent: Parent,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Segment {
    pub(crate) operation: u32,
    pub(crate) number: u32,
    pub(crate) elements: u32,
    pub(crate) datatype: u8,
    pub(crate) operator: u8,
    pub(crate) has_data: u8,
    pub(crate) reserved: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Lane {
    pub(crate) payload: [u8; PAYLOAD_BYTES_MAX],
    pub(crate) mark: Mark,
    pub(crate) interface: u32,
    pub(crate) hardware: [u8; 12],
}

/// The child whose contribution a lane has, and its newest attempt.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Of a lane that is not filled.
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn attempt(self) -> u8 {
        self.0 as u8
    }
}

#[repr(C, align(8))]
pub(crate) struct Slot {
    pub(crate) word: u64,
    pub(crate) segment: Segment,
    pub(crate) forwarded: Mark,
    pub(crate) result: [u8; PAYLOAD_BYTES_MAX],
    pub(crate) lanes: [Lane; CHILDREN_MAX],
}

/// What became of packets for the groups served here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Contributions counted.
    pub taken: u64,
    /// Segments completed.
    pub completed: u64,
    /// Segments that were gathered, and handed to the process to be folded.
    pub gathered: u64,
    /// Contributions that had been counted before.
    pub repeats: u64,
    /// Requests with a wrong capability or source, or outside the window.
    pub refused: u64,
    /// Requests left to the process: an operator, a type or a length that the program does not take, or
    /// a sequence that the process has.
    pub passed: u64,
    /// Acks sent.
    pub acks: u64,
    /// Nacks sent.
    pub nacks: u64,
    /// Results sent to multicast addresses.
    pub multicasts: u64,
    /// Packets whose checksum was wrong.
    pub damaged: u64,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;
    use crate::user_space;

    #[test]
    fn both_sides_agree() {
        let mirrored = [
            size_of::<Edge>(),
            size_of::<Place>(),
            size_of::<Lane>(),
            size_of::<Multicast>(),
            offset_of!(Place, multicast),
            size_of::<Parent>(),
            offset_of!(Place, parent),
            offset_of!(Parent, route),
            offset_of!(Slot, forwarded),
            size_of::<Slot>(),
            size_of::<Counters>(),
            offset_of!(Place, edges),
            offset_of!(Edge, next),
            offset_of!(Lane, mark),
            offset_of!(Lane, interface),
            offset_of!(Slot, result),
            offset_of!(Slot, lanes),
            CHILDREN_MAX,
            PAYLOAD_BYTES_MAX,
            FLOAT_SUMS_MAX,
            SLOTS_PER_PLACE,
            PLACES,
            SLOTS,
        ];
        assert_eq!(user_space::layout(mirrored.len()), mirrored);
    }
}
