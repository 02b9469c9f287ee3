//! Rings of packets in memory that the program writes to: many writers, one reader each.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};

/// Rings that a process has at an interface. As in the program.
pub const RINGS_MAX: usize = 32;
const SLOTS: usize = 64;
const PACKET_BYTES_MAX: usize = 1500;

/// How long a writer of the program may take: its processor may be another machine's for a while.
const WRITE_TAKES_MAX: Duration = Duration::from_millis(100);

/// As in the program.
#[repr(C)]
struct Slot {
    turn: AtomicU64,
    len_bytes: u32,
    bytes: [u8; PACKET_BYTES_MAX],
}

/// As in the program.
#[repr(C)]
struct Ring {
    tail: AtomicU64,
    reserved: [u64; 7],
    awaited: AtomicI64,
    reserved_too: [u64; 7],
    slots: [Slot; SLOTS],
}

/// Bytes of a ring.
pub const RING_BYTES: usize = size_of::<Ring>();

/// The mapped rings of a receiver.
struct Rings(MmapRaw);

impl Rings {
    fn ring(&self, index: usize) -> *mut Ring {
        assert!(index < RINGS_MAX);
        // SAFETY: the mapping holds that many rings, asserted; the layout is the program's.
        unsafe { self.0.as_mut_ptr().cast::<Ring>().add(index) }
    }
}

/// Maps the rings of a receiver that nothing is delivered to yet, and gives the reader of each.
///
/// # Errors
/// If the kernel does not allow it.
pub fn map(rings: impl AsFd) -> io::Result<Vec<Reader>> {
    let mapped =
        MmapOptions::new().len(RINGS_MAX * size_of::<Ring>()).map_raw(rings.as_fd().as_raw_fd())?;
    Ok(readers(mapped))
}

fn readers(mapped: MmapRaw) -> Vec<Reader> {
    let rings = Arc::new(Rings(mapped));
    let reader = |index| {
        let mut reader = Reader { rings: Arc::clone(&rings), index, head: 0 };
        while reader.head < SLOTS as u64 {
            reader.turn().store(reader.head, Ordering::Release);
            reader.head += 1;
        }
        reader.head = 0;
        reader
    };
    (0..RINGS_MAX).map(reader).collect()
}

/// The only reader of one ring.
pub struct Reader {
    rings: Arc<Rings>,
    index: usize,
    /// The next position to read.
    head: u64,
}

// SAFETY: the mapping is memory like any other, and a ring's slots are read by its only reader, wherever that is.
unsafe impl Send for Reader {}

impl Reader {
    /// The ring's number in the program.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Hands the next packet to `take`, from its header of IP on. None if there is none. A packet that the program could not
    /// copy is empty.
    pub fn read<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let slot = self.slot();
        // SAFETY: the slot lies in the mapping. Its turn, read before, says that the program has written it and leaves it alone
        // until it is released.
        let packet = unsafe {
            let len_bytes = ((*slot).len_bytes as usize).min(PACKET_BYTES_MAX);
            std::slice::from_raw_parts((&raw const (*slot).bytes).cast::<u8>(), len_bytes)
        };
        let taken = take(packet);
        self.turn().store(self.head + SLOTS as u64, Ordering::Release);
        self.head += 1;
        Some(taken)
    }

    /// Whether there is no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turn().load(Ordering::Acquire) != self.head + 1
    }

    /// Has the program let the last of so many packets through to the network stack. False if there is a packet already.
    pub(super) fn arm(&self, lacking: u32) -> bool {
        self.awaited_counter().store(lacking.into(), Ordering::Relaxed);
        // The program writes a packet before it looks at this number; either it sees the number, or the packet is seen here.
        fence(Ordering::SeqCst);
        self.is_empty()
    }

    /// Ends what [`Reader::arm`] began.
    pub(super) fn disarm(&self) {
        self.awaited_counter().store(0, Ordering::Relaxed);
    }

    /// Forgets all packets, after the program has begun its last. False if it did not end.
    pub(super) fn drain(&mut self) -> bool {
        self.disarm();
        let deadline = Instant::now() + WRITE_TAKES_MAX;
        while self.tail().load(Ordering::Acquire) != self.head {
            if self.read(|_| ()).is_none() {
                if Instant::now() > deadline {
                    return false;
                }
                std::thread::yield_now();
            }
        }
        true
    }

    fn slot(&self) -> *const Slot {
        let ring = self.rings.ring(self.index);
        // SAFETY: the ring lies in the mapping, and has that many slots.
        unsafe { (&raw const (*ring).slots).cast::<Slot>().add(self.head as usize % SLOTS) }
    }

    fn turn(&self) -> &AtomicU64 {
        // SAFETY: the slot lies in the mapping, which lives as long as this; both sides change its turn atomically.
        unsafe { &(*self.slot()).turn }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as in `turn`.
        unsafe { &(*self.rings.ring(self.index)).tail }
    }

    fn awaited_counter(&self) -> &AtomicI64 {
        // SAFETY: as in `turn`.
        unsafe { &(*self.rings.ring(self.index)).awaited }
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapMut;

    use super::*;

    /// What the program does.
    fn put(reader: &Reader, packet: &[u8]) -> bool {
        let ring = reader.rings.ring(reader.index);
        // SAFETY: one thread of a test writes and reads.
        unsafe {
            let position = (*ring).tail.load(Ordering::Relaxed);
            let slot = (&raw mut (*ring).slots).cast::<Slot>().add(position as usize % SLOTS);
            if (*slot).turn.load(Ordering::Relaxed) != position {
                return false;
            }
            (*ring).tail.store(position + 1, Ordering::Relaxed);
            (&raw mut (*slot).bytes).cast::<u8>().copy_from(packet.as_ptr(), packet.len());
            (*slot).len_bytes = packet.len() as u32;
            (*slot).turn.store(position + 1, Ordering::Release);
        }
        true
    }

    fn any_reader() -> Reader {
        let memory = MmapMut::map_anon(RINGS_MAX * size_of::<Ring>()).expect("memory");
        readers(memory.into()).pop().expect("rings")
    }

    #[test]
    fn packets_come_in_order_and_a_full_ring_takes_no_more() {
        let mut reader = any_reader();
        let mut next = 0_u8;
        for round in 0..20 {
            let count = if round % 5 == 0 { SLOTS } else { 7 * round % SLOTS };
            for number in 0..count {
                assert!(put(&reader, &[next.wrapping_add(number as u8)]), "round {round}");
            }
            assert_eq!(put(&reader, &[0]), count < SLOTS, "round {round}");
            for _ in 0..count {
                assert_eq!(reader.read(<[u8]>::to_vec), Some(vec![next]));
                next = next.wrapping_add(1);
            }
            let last = reader.read(<[u8]>::to_vec);
            assert_eq!(last, (count < SLOTS).then(|| vec![0]));
            assert_eq!(reader.read(|_| ()), None);
        }
    }

    #[test]
    fn what_is_drained_leaves_all_slots_to_the_next_owner() {
        let mut reader = any_reader();
        for _ in 0..3 {
            while put(&reader, &[1]) {}
            assert!(reader.drain() && reader.is_empty());
        }
        assert_eq!((0..SLOTS).filter(|_| put(&reader, &[2])).count(), SLOTS);
        assert_eq!(reader.read(<[u8]>::to_vec), Some(vec![2]));
    }

    #[test]
    fn a_reader_may_sleep_only_while_there_is_nothing() {
        let mut reader = any_reader();
        assert!(reader.arm(3));
        assert_eq!(reader.awaited_counter().load(Ordering::Relaxed), 3);
        assert!(put(&reader, &[1]));
        assert!(!reader.arm(2));
        reader.disarm();
        assert_eq!(reader.awaited_counter().load(Ordering::Relaxed), 0);
        assert_eq!(reader.read(|packet| packet.len()), Some(1));
    }

    #[test]
    fn a_writer_that_does_not_end_keeps_its_ring() {
        let mut reader = any_reader();
        // It has claimed a slot.
        reader.tail().store(1, Ordering::Relaxed);
        assert!(!reader.drain());
    }
}
