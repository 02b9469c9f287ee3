//! The mapping that two processes share: a page of control words and two rings.
//!
//! ```text
//! file:     | control page | ring 0: connector to acceptor | ring 1: acceptor to connector |
//! mapping:  | control page | ring 0 | ring 0 again | ring 1 | ring 1 again |
//! ```
//!
//! Each ring is mapped twice in a row, so that every record is contiguous whatever its position.
//! Control words that different sides write, or that change at different rates, lie two cache lines
//! apart, because processors fetch lines in pairs.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use tributary_wire::frame::HEADER_BYTES;

use super::ring::{LINE_BYTES, Memory, Side};

const CONTROL_STRIDE_BYTES: usize = 2 * LINE_BYTES;

/// Control words of one ring. Each has its own pair of lines.
const RELEASED: usize = 0;
const CONSUMER_WAITING: usize = 1;
const PRODUCER_WAITING: usize = 2;
const CONTROL_WORDS: usize = 3;

const _: () = assert!(2 * CONTROL_WORDS * CONTROL_STRIDE_BYTES <= 4096);

/// Size of the file that holds two rings of `ring_bytes`.
pub(super) fn file_bytes(ring_bytes: usize) -> u64 {
    (rustix::param::page_size() + 2 * ring_bytes) as u64
}

/// One mapping of the shared file, unmapped when dropped.
pub(super) struct Mapping {
    base: NonNull<u8>,
    ring_bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `Mapping` offers no access to it
// but through `Ring`, which uses atomics for every word that both sides may touch at once.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself is never written through.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file of exactly [`file_bytes`] that is sealed against shrinking.
    pub(super) fn new(file: BorrowedFd<'_>, ring_bytes: usize) -> Result<Self, Errno> {
        let page = rustix::param::page_size();
        assert!(ring_bytes.is_power_of_two() && ring_bytes.is_multiple_of(page));
        let total = Self::total_bytes(ring_bytes);
        // SAFETY: a fresh mapping at an address of the kernel's choice, without access.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), MapFlags::PRIVATE)?
        };
        let base = NonNull::new(base.cast::<u8>()).expect("the kernel maps nothing at zero");
        let mapping = Self { base, ring_bytes };
        mapping.place(file, 0, page, 0)?;
        for ring in 0..2 {
            let offset = page + ring * ring_bytes;
            let at = page + 2 * ring * ring_bytes;
            mapping.place(file, at, ring_bytes, offset as u64)?;
            mapping.place(file, at + ring_bytes, ring_bytes, offset as u64)?;
        }
        Ok(mapping)
    }

    fn total_bytes(ring_bytes: usize) -> usize {
        rustix::param::page_size() + 4 * ring_bytes
    }

    /// Maps `len` bytes of the file from `offset` over the reservation from `at`.
    fn place(&self, file: BorrowedFd<'_>, at: usize, len: usize, offset: u64) -> Result<(), Errno> {
        assert!(at + len <= Self::total_bytes(self.ring_bytes));
        // Populated now, so that no frame pays for a page fault.
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: `at..at + len` lies in the reservation this mapping owns (asserted above), to
        // which nothing refers yet.
        unsafe {
            let target = self.base.as_ptr().add(at).cast();
            mmap(target, len, access, flags, file, offset)?;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is exactly the range that `new` reserved. Every `Ring` that points into it
        // holds an `Arc` of this mapping, so none is left. A failure would only leak.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), Self::total_bytes(self.ring_bytes)) };
    }
}

/// One ring of a mapping.
pub(super) struct Ring {
    control: NonNull<u8>,
    data: NonNull<u8>,
    ring_bytes: usize,
    /// Keeps the two pointers valid.
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointers are into the mapping held by the `Arc`, which is `Send` and `Sync`; one
// `Ring` is used by one thread at a time.
unsafe impl Send for Ring {}

impl Ring {
    /// Ring `index` (0 or 1) of `mapping`.
    pub(super) fn new(mapping: &Arc<Mapping>, index: usize) -> Self {
        assert!(index < 2);
        let ring_bytes = mapping.ring_bytes;
        // SAFETY: both offsets lie inside the mapping: the control words in its first page (a
        // constant assertion above), ring `index` behind it, mapped twice.
        let (control, data) = unsafe {
            let page = rustix::param::page_size();
            (
                mapping.base.add(index * CONTROL_WORDS * CONTROL_STRIDE_BYTES),
                mapping.base.add(page + 2 * index * ring_bytes),
            )
        };
        Self { control, data, ring_bytes, _mapping: Arc::clone(mapping) }
    }

    fn waiting_word(&self, side: Side) -> &AtomicU64 {
        match side {
            Side::Producer => self.control_word(PRODUCER_WAITING),
            Side::Consumer => self.control_word(CONSUMER_WAITING),
        }
    }

    fn control_word(&self, word: usize) -> &AtomicU64 {
        debug_assert!(word < CONTROL_WORDS);
        // SAFETY: inside the control page, aligned to a line, only ever accessed as an atomic, and
        // mapped as long as `self` lives.
        unsafe {
            AtomicU64::from_ptr(self.control.add(word * CONTROL_STRIDE_BYTES).as_ptr().cast())
        }
    }

    fn ready_word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at < self.ring_bytes && at.is_multiple_of(LINE_BYTES));
        // SAFETY: `at` is a line of the ring (a position modulo the ring size, see `Memory`), so
        // the word is mapped and aligned. Non-atomic accesses to it happen only while its line
        // holds payload; then only the side that owns the line accesses it.
        unsafe { AtomicU32::from_ptr(self.data.add(at).as_ptr().cast()) }
    }
}

impl Memory for Ring {
    fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    fn ready(&self, at: usize, order: Ordering) -> u32 {
        self.ready_word(at).load(order)
    }

    fn set_ready(&self, at: usize, ready: u32, order: Ordering) {
        self.ready_word(at).store(ready, order);
    }

    fn write(&self, at: usize, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        assert!(at < self.ring_bytes && LINE_BYTES + payload.len() <= self.ring_bytes);
        // SAFETY: the record lies inside the doubly mapped ring (asserted above) and can't overlap
        // the caller's private buffers. Until it is published, only the producer accesses it.
        unsafe {
            let record = self.data.add(at).as_ptr();
            ptr::copy_nonoverlapping(header.as_ptr().add(4), record.add(4), HEADER_BYTES - 4);
            ptr::copy_nonoverlapping(payload.as_ptr(), record.add(LINE_BYTES), payload.len());
        }
    }

    fn read_header(&self, at: usize) -> [u8; HEADER_BYTES] {
        debug_assert!(at < self.ring_bytes && at.is_multiple_of(LINE_BYTES));
        let mut words = [0_u64; HEADER_BYTES / 8];
        let line = self.data.as_ptr().cast::<u64>();
        for (index, word) in words.iter_mut().enumerate() {
            // SAFETY: inside the line at `at`, which is mapped and aligned. Volatile, so that every
            // word is read once: a peer can't change a header between its check and its use.
            *word = unsafe { line.add(at / 8 + index).read_volatile() };
        }
        let mut header = [0; HEADER_BYTES];
        for (bytes, word) in header.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        header
    }

    fn payload(&self, at: usize, payload_bytes: usize) -> &[u8] {
        assert!(at < self.ring_bytes && LINE_BYTES + payload_bytes <= self.ring_bytes);
        // SAFETY: inside the doubly mapped ring (asserted above). The producer does not write there
        // until the record is released, which needs `&mut` of the consumer that this borrow comes
        // from. A peer that breaks the protocol can change bytes under the slice; `Frame` documents
        // that, and memory safety depends on payload bytes nowhere.
        unsafe {
            std::slice::from_raw_parts(self.data.add(at + LINE_BYTES).as_ptr(), payload_bytes)
        }
    }

    fn load_released(&self, order: Ordering) -> u64 {
        self.control_word(RELEASED).load(order)
    }

    fn set_released(&self, released: u64, order: Ordering) {
        self.control_word(RELEASED).store(released, order);
    }

    fn waiting(&self, side: Side, order: Ordering) -> u64 {
        self.waiting_word(side).load(order)
    }

    fn set_waiting(&self, side: Side, waiting: u64, order: Ordering) {
        self.waiting_word(side).store(waiting, order);
    }

    fn fence(&self) {
        atomic::fence(Ordering::SeqCst);
    }
}
