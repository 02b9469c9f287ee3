//! The shared segment: its layout, its mapping, and the words in it.
//!
//! Owns every address computation on shared memory. No length or position is ever read from the
//! segment: all come from the number of ranks and from constants, so a broken peer can spoil the
//! data, but cannot make this process touch memory outside the mapping.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// Most ranks a group may have.
pub const RANKS_MAX: u32 = 1024;
/// Words of a rank's CPU mask: room for 1,024 CPUs, as the kernel's default mask has.
pub(super) const CPU_MASK_WORDS: usize = 16;

const LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

/// The head of the segment.
#[repr(C, align(4096))]
pub(super) struct Head {
    /// Equal to the offer's nonce, else this is another segment.
    pub(super) nonce: [AtomicU64; 2],
    pub(super) failure: FailureWord,
    pub(super) late: LateWord,
}

/// Zero, or the first failure that any rank reported; on a line of its own because every waiting
/// rank reads it and hardly anyone ever writes it.
#[repr(C, align(128))]
pub(super) struct FailureWord(pub(super) AtomicU64);

/// Which rank was told to be late last, and in which step; see `lateness`.
#[repr(C, align(128))]
pub(super) struct LateWord(pub(super) AtomicU64);

/// What a rank tells the others about itself when it attaches.
#[repr(C, align(256))]
pub(super) struct Registration {
    /// 0: free, 1: being filled in, 2: complete.
    pub(super) state: AtomicU32,
    pub(super) pid: AtomicU32,
    pub(super) start_time_ticks: AtomicU64,
    pub(super) pid_namespace: AtomicU64,
    /// Where the process's probe words are, in its memory; 0 where it has none.
    pub(super) probe_address: AtomicU64,
    pub(super) probe_marks: [AtomicU64; 2],
    /// What the rank's probes of the others found; see `peer_memory`.
    pub(super) peer_access: AtomicU64,
    pub(super) cpus: [AtomicU64; CPU_MASK_WORDS],
}

/// What a rank's peers poll outside the slots. Two pairs of lines, because hardware prefetches
/// lines in pairs, and `done` changes with every step while the rest is quiet.
#[repr(C, align(256))]
pub(super) struct Control {
    pub(super) done: DoneLine,
    /// Futex word: changes whenever this rank published something while someone slept.
    pub(super) doorbell: AtomicU32,
    /// How many peers sleep, or are about to, until this rank publishes something.
    pub(super) sleepers: AtomicU32,
    /// Not zero once the rank has left the group.
    pub(super) departed: AtomicU32,
    /// Not zero while this rank may be writing to the memory of others; see `direct`.
    pub(super) writing: AtomicU32,
    /// When this rank last said that it had waited for long, in milliseconds; see `lateness`.
    pub(super) waited_at_ms: AtomicU64,
    /// Where in the order of steps this rank last said that it waits, and in which call; see `disagreement`.
    pub(super) waits_in: AtomicU64,
}

/// Per ring, the last step after which this rank reads no slot of that or an earlier step.
#[repr(C, align(128))]
pub(super) struct DoneLine(pub(super) [AtomicU64; RINGS.len()]);

/// Shape of one ring: every rank has `slots` slots, each a flag and a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingShape {
    pub(super) slots: u64,
    pub(super) capacity_bytes: usize,
    payload_offset_bytes: usize,
    slot_stride_bytes: usize,
    ring_offset_bytes: usize,
}

/// The short ring: flag and payload share the line, up to 56 bytes; 4,152 bytes are 65 lines, an
/// odd number, so that equal slots of the ranks do not compete for the same cache sets.
const SHORT: RingShape = RingShape {
    slots: 4,
    capacity_bytes: 65 * LINE_BYTES - 8,
    payload_offset_bytes: 8,
    slot_stride_bytes: 65 * LINE_BYTES,
    ring_offset_bytes: 0,
};
/// The long ring: pieces that stay in the second-level cache, on lines of their own.
const LONG: RingShape = RingShape {
    slots: 4,
    capacity_bytes: 128 * 1024,
    payload_offset_bytes: LINE_BYTES,
    slot_stride_bytes: 129 * 1024,
    ring_offset_bytes: 5 * PAGE_BYTES,
};
/// The exchange slots of a group of two; as long as a slot of the short ring.
const EXCHANGE: RingShape = RingShape {
    slots: 2,
    capacity_bytes: SHORT.capacity_bytes,
    payload_offset_bytes: 8,
    slot_stride_bytes: SHORT.slot_stride_bytes,
    ring_offset_bytes: LONG.ring_offset_bytes + 4 * LONG.slot_stride_bytes,
};
/// The line ring: one line a slot, and so many of them that a rank which only sends reads its
/// readers' counters rarely.
const LINE: RingShape = RingShape {
    slots: 64,
    capacity_bytes: LINE_BYTES - 8,
    payload_offset_bytes: 8,
    slot_stride_bytes: LINE_BYTES,
    ring_offset_bytes: EXCHANGE.ring_offset_bytes + 2 * PAGE_BYTES,
};
/// The rings by index.
pub(super) const RINGS: [RingShape; 4] = [SHORT, LONG, EXCHANGE, LINE];
/// Index of the short ring.
pub(super) const SHORT_RING: usize = 0;
/// Index of the long ring.
pub(super) const LONG_RING: usize = 1;
/// Index of the exchange slots.
pub(super) const EXCHANGE_RING: usize = 2;
/// Index of the line ring.
pub(super) const LINE_RING: usize = 3;

const RANK_AREA_BYTES: usize = LINE.ring_offset_bytes + PAGE_BYTES;

const _: () = {
    assert!(SHORT.slots as usize * SHORT.slot_stride_bytes <= LONG.ring_offset_bytes);
    assert!(LONG.payload_offset_bytes + LONG.capacity_bytes <= LONG.slot_stride_bytes);
    assert!(LONG.slots == 4 && RANK_AREA_BYTES.is_multiple_of(PAGE_BYTES));
    assert!(EXCHANGE.slot_stride_bytes <= 2 * PAGE_BYTES);
    assert!(LINE.slots as usize * LINE.slot_stride_bytes <= PAGE_BYTES);
    assert!(size_of::<Head>() == PAGE_BYTES);
};

/// Where everything lies in the segment of a group of `ranks`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    ranks: u32,
}

impl Layout {
    /// `ranks` is at least 1 and at most [`RANKS_MAX`].
    pub(super) fn new(ranks: u32) -> Self {
        assert!((1..=RANKS_MAX).contains(&ranks), "ranks were checked when the offer was read");
        Self { ranks }
    }

    /// Size of the whole segment; memory is used only where it is touched.
    pub(super) fn size_bytes(self) -> usize {
        self.areas_offset() + self.ranks as usize * RANK_AREA_BYTES
    }

    fn controls_offset(self) -> usize {
        size_of::<Head>() + self.ranks as usize * size_of::<Registration>()
    }

    fn areas_offset(self) -> usize {
        (self.controls_offset() + self.ranks as usize * size_of::<Control>())
            .next_multiple_of(PAGE_BYTES)
    }
}

/// The mapped segment. Unmapped when dropped.
pub(super) struct Segment {
    base: NonNull<u8>,
    /// Where the control lines begin; with `areas` kept because every exchange needs them.
    controls: NonNull<Control>,
    /// Where the rings begin.
    areas: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the mapping belongs to the process, not to a thread; all words in it are atomics, and
// payloads are handed out as raw pointers only.
unsafe impl Send for Segment {}

impl Segment {
    /// Maps the whole of `file`, which the caller found to have the layout's size.
    pub(super) fn map(file: &OwnedFd, layout: Layout) -> rustix::io::Result<Self> {
        // SAFETY: a fresh mapping at an address the kernel chooses touches no existing memory.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                layout.size_bytes(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let base: NonNull<u8> =
            NonNull::new(base.cast()).expect("mmap returns an error, never null");
        // SAFETY: both offsets lie inside the mapping, by the layout.
        let (controls, areas) =
            unsafe { (base.add(layout.controls_offset()), base.add(layout.areas_offset())) };
        Ok(Self { base, controls: controls.cast(), areas, layout })
    }

    /// The number of ranks.
    #[inline]
    pub(super) fn ranks(&self) -> u32 {
        self.layout.ranks
    }

    /// The head.
    #[inline]
    pub(super) fn head(&self) -> &Head {
        // SAFETY: offset 0 is page-aligned and inside the mapping, which lives as long as `self`;
        // `Head` consists of atomics, for which every bit pattern is valid.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    /// The registration of `rank`.
    pub(super) fn registration(&self, rank: u32) -> &Registration {
        assert!(rank < self.layout.ranks);
        let offset = size_of::<Head>() + rank as usize * size_of::<Registration>();
        // SAFETY: inside the mapping by the assertion and the layout, aligned to its size; atomics
        // only, as for the head.
        unsafe { self.base.add(offset).cast::<Registration>().as_ref() }
    }

    /// The control lines of `rank`.
    #[inline]
    pub(super) fn control(&self, rank: u32) -> &Control {
        debug_assert!(rank < self.layout.ranks);
        // SAFETY: `rank` is below `ranks` (`HostGroup::start` and the fast path check the ranks of
        // an operation, all others come from `0..ranks`), so this is inside the mapping, and
        // aligned to its size; atomics only, as for the head.
        unsafe { self.controls.add(rank as usize).as_ref() }
    }

    #[inline]
    fn slot(&self, ring: usize, rank: u32, step: u64) -> NonNull<u8> {
        debug_assert!(rank < self.layout.ranks);
        let shape = &RINGS[ring];
        // An exchange slot lies in the area of either of two ranks, and belongs to a rank in every
        // other step.
        let (area, slot) = if ring == EXCHANGE_RING {
            ((rank as usize + step as usize) & 1, 0)
        } else {
            (rank as usize, (step % shape.slots) as usize)
        };
        let offset =
            area * RANK_AREA_BYTES + shape.ring_offset_bytes + slot * shape.slot_stride_bytes;
        // SAFETY: inside the mapping: `rank` is below `ranks` (`HostGroup::start` and the fast path
        // check the ranks of an operation, all others come from `0..ranks`), only groups of two use
        // exchange slots, and the constant assertions above keep every slot inside its area.
        unsafe { self.areas.add(offset) }
    }

    /// The flag of the slot that `rank` fills in `step`: the number of the last step filled in, and the call; see
    /// `call`.
    #[inline]
    pub(super) fn flag(&self, ring: usize, rank: u32, step: u64) -> &AtomicU64 {
        // SAFETY: slots begin at multiples of 64 bytes inside the mapping, with their flag, which
        // every process accesses as an atomic only.
        unsafe { self.slot(ring, rank, step).cast::<AtomicU64>().as_ref() }
    }

    /// The payload of that slot, to be read: `capacity_bytes` of the ring.
    #[inline]
    pub(super) fn payload(&self, ring: usize, rank: u32, step: u64) -> *const u8 {
        self.payload_to_fill(ring, rank, step)
    }

    /// The same, to be written.
    #[inline]
    pub(super) fn payload_to_fill(&self, ring: usize, rank: u32, step: u64) -> *mut u8 {
        // SAFETY: the payload begins inside the slot, for every shape of `RINGS` has its payload
        // offset below its stride.
        unsafe { self.slot(ring, rank, step).add(RINGS[ring].payload_offset_bytes).as_ptr() }
    }

    /// The last step of `ring` that `rank` has finished reading.
    #[inline]
    pub(super) fn done_step(&self, ring: usize, rank: u32) -> &AtomicU64 {
        &self.control(rank).done.0[ring]
    }

    /// The nonce as it stands in the segment.
    pub(super) fn nonce(&self) -> [u64; 2] {
        // Relaxed: the leader wrote it before it sent the offer; the message orders the two.
        [0, 1].map(|word: usize| self.head().nonce[word].load(Ordering::Relaxed))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map` with this size, and every reference into it
        // borrows `self`.
        let unmapped =
            unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.layout.size_bytes()) };
        debug_assert!(unmapped.is_ok(), "the range is one that mmap returned");
    }
}
