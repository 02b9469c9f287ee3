//! A segment with two slots a ring, whose payloads loom watches.

use std::sync::Arc;

use loom::cell::UnsafeCell;

use super::sync::{AtomicU32, AtomicU64, Purpose, Word32};

/// Most ranks a group may have.
pub(super) const RANKS_MAX: u32 = 1024;

pub(super) const SHORT_RING: usize = 0;
pub(super) const LONG_RING: usize = 1;
pub(super) const EXCHANGE_RING: usize = 2;
pub(super) const LINE_RING: usize = 3;

#[derive(Clone, Copy)]
pub(super) struct RingShape {
    pub(super) slots: u64,
    pub(super) capacity_bytes: usize,
}

/// Two slots are the fewest that the argument in [`crate`] allows.
pub(super) const RINGS: [RingShape; 4] = [
    RingShape { slots: 2, capacity_bytes: 32 },
    // As long as the shortest piece of a chain.
    RingShape { slots: 2, capacity_bytes: 8 * 1024 },
    RingShape { slots: 2, capacity_bytes: 32 },
    RingShape { slots: 2, capacity_bytes: 8 },
];

const SLOTS: usize = 2;

pub(super) struct Head {
    pub(super) failure: FailureWord,
}

pub(super) struct FailureWord(pub(super) AtomicU64);

pub(super) struct Control {
    pub(super) done: DoneLine,
    pub(super) doorbell: AtomicU32,
    pub(super) sleepers: Word32,
    pub(super) departed: Word32,
    pub(super) writing: Word32,
}

pub(super) struct DoneLine(pub(super) [AtomicU64; RINGS.len()]);

struct Slot {
    flag: AtomicU64,
    payload: UnsafeCell<Box<[u8]>>,
}

impl Slot {
    fn new(ring: usize) -> Self {
        let payload = vec![0; RINGS[ring].capacity_bytes].into_boxed_slice();
        Self { flag: AtomicU64::new(Purpose::Flag), payload: UnsafeCell::new(payload) }
    }
}

struct Area {
    control: Control,
    rings: [[Slot; SLOTS]; RINGS.len()],
}

impl Area {
    fn new() -> Self {
        let control = Control {
            done: DoneLine(std::array::from_fn(|_| AtomicU64::new(Purpose::Done))),
            doorbell: AtomicU32::new(Purpose::Doorbell),
            sleepers: Word32::new(Purpose::Sleepers),
            departed: Word32::new(Purpose::Departed),
            writing: Word32::new(Purpose::Writing),
        };
        let rings = std::array::from_fn(|ring| std::array::from_fn(|_| Slot::new(ring)));
        Self { control, rings }
    }
}

struct Memory {
    head: Head,
    areas: Vec<Area>,
}

/// One rank's mapping of the segment.
#[derive(Clone)]
pub(super) struct Segment {
    memory: Arc<Memory>,
}

impl Segment {
    pub(super) fn new(ranks: u32) -> Self {
        let head = Head { failure: FailureWord(AtomicU64::new(Purpose::Failure)) };
        let areas = (0..ranks).map(|_| Area::new()).collect();
        Self { memory: Arc::new(Memory { head, areas }) }
    }

    pub(super) fn ranks(&self) -> u32 {
        self.memory.areas.len() as u32
    }

    pub(super) fn head(&self) -> &Head {
        &self.memory.head
    }

    pub(super) fn control(&self, rank: u32) -> &Control {
        &self.memory.areas[rank as usize].control
    }

    /// As in the segment that ships: an exchange slot belongs to a rank in every other step.
    fn slot(&self, ring: usize, rank: u32, step: u64) -> &Slot {
        let (area, slot) = if ring == EXCHANGE_RING {
            ((rank as usize + step as usize) & 1, 0)
        } else {
            (rank as usize, step as usize % SLOTS)
        };
        &self.memory.areas[area].rings[ring][slot]
    }

    pub(super) fn flag(&self, ring: usize, rank: u32, step: u64) -> &AtomicU64 {
        &self.slot(ring, rank, step).flag
    }

    pub(super) fn payload(&self, ring: usize, rank: u32, step: u64) -> *const u8 {
        // SAFETY: loom hands out the pointer of a live cell and reports any access at the same
        // time.
        self.slot(ring, rank, step).payload.with(|payload| unsafe { (*payload).as_ptr() })
    }

    pub(super) fn payload_to_fill(&self, ring: usize, rank: u32, step: u64) -> *mut u8 {
        // SAFETY: loom hands out the pointer of a live cell and reports any access at the same time.
        self.slot(ring, rank, step).payload.with_mut(|payload| unsafe { (*payload).as_mut_ptr() })
    }

    pub(super) fn done_step(&self, ring: usize, rank: u32) -> &AtomicU64 {
        &self.control(rank).done.0[ring]
    }
}
