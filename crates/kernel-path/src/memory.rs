//! The memory of the tables, which the program in the kernel reads and writes at the same time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapMut, MmapOptions, MmapRaw};

use crate::layout::{Counters, PLACES, Place, SLOTS, SLOTS_PER_PLACE, Slot};

/// Places, slots and counters, mapped.
pub struct Memory {
    places: MmapRaw,
    slots: MmapRaw,
    counters: MmapRaw,
}

const PLACES_BYTES: usize = PLACES * size_of::<Place>();
const SLOTS_BYTES: usize = SLOTS * size_of::<Slot>();

impl Memory {
    /// Ordinary memory, all zeros.
    ///
    /// # Errors
    /// If the system has none.
    pub fn anonymous() -> io::Result<Self> {
        let map = |bytes| MmapMut::map_anon(bytes).map(MmapRaw::from);
        Ok(Self {
            places: map(PLACES_BYTES)?,
            slots: map(SLOTS_BYTES)?,
            counters: map(size_of::<Counters>())?,
        })
    }

    /// Maps the program's tables.
    ///
    /// # Errors
    /// If the kernel does not allow it.
    pub(crate) fn of_maps(
        places: impl AsFd,
        slots: impl AsFd,
        counters: impl AsFd,
    ) -> io::Result<Self> {
        let map = |descriptor: BorrowedFd<'_>, bytes| {
            MmapOptions::new().len(bytes).map_raw(descriptor.as_raw_fd())
        };
        Ok(Self {
            places: map(places.as_fd(), PLACES_BYTES)?,
            slots: map(slots.as_fd(), SLOTS_BYTES)?,
            counters: map(counters.as_fd(), size_of::<Counters>())?,
        })
    }

    /// Where places, slots and counters begin.
    #[cfg(feature = "user-space")]
    pub(crate) fn starts(&self) -> (*mut u8, *mut u8, *mut u8) {
        (self.places.as_mut_ptr(), self.slots.as_mut_ptr(), self.counters.as_mut_ptr())
    }

    pub(crate) fn place(&self, index: usize) -> *mut Place {
        assert!(index < PLACES);
        // SAFETY: the mapping holds that many places, asserted; the layouts are the program's.
        unsafe { self.places.as_mut_ptr().cast::<Place>().add(index) }
    }

    /// Whether the program serves a place.
    pub(crate) fn is_on(&self, index: usize) -> &AtomicU32 {
        let place = self.place(index);
        // SAFETY: the place lies in the mapping, which lives as long as this; the number is aligned, and the
        // program only reads it.
        unsafe { AtomicU32::from_ptr(&raw mut (*place).is_on) }
    }

    /// One slot of a place.
    pub(crate) fn slot(&self, place: usize, index: usize) -> *mut Slot {
        assert!(place < PLACES && index < SLOTS_PER_PLACE);
        let index = place * SLOTS_PER_PLACE + index;
        // SAFETY: as in `place`.
        unsafe { self.slots.as_mut_ptr().cast::<Slot>().add(index) }
    }

    /// The word of a slot.
    pub(crate) fn word(&self, place: usize, index: usize) -> &AtomicU64 {
        let slot = self.slot(place, index);
        // SAFETY: the slot lies in the mapping, which lives as long as this; its word is aligned, and both
        // sides change it atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*slot).word) }
    }

    pub(crate) fn counters(&self) -> Counters {
        // SAFETY: the mapping holds the counters. The program adds to each in one instruction, so each
        // is read whole.
        unsafe { self.counters.as_ptr().cast::<Counters>().read_volatile() }
    }
}
