//! A ring of an AF_XDP socket, in memory that is shared with the kernel: one side writes entries, the other reads them.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::net::xdp::XdpRingOffset;

/// The mapped ring: two counters, which only grow and wrap, and entries.
struct Mapped<T> {
    memory: MmapRaw,
    offsets: XdpRingOffset,
    entries: u32,
    _entry: PhantomData<T>,
}

impl<T: Copy> Mapped<T> {
    /// Maps a ring of so many entries, a power of two, which the socket has at a place in the file that it is.
    fn map(socket: impl AsFd, at: u64, offsets: XdpRingOffset, entries: u32) -> io::Result<Self> {
        assert!(entries.is_power_of_two());
        let len_bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        let memory =
            MmapOptions::new().offset(at).len(len_bytes).map_raw(socket.as_fd().as_raw_fd())?;
        Ok(Self { memory, offsets, entries, _entry: PhantomData })
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel says that a counter lies there, in the mapping, which lives as long as this. Both sides use it
        // atomically.
        unsafe { &*self.memory.as_ptr().add(offset as usize).cast::<AtomicU32>() }
    }

    /// Entries that were written so far.
    fn produced_count(&self) -> &AtomicU32 {
        self.counter(self.offsets.producer)
    }

    /// Entries that were read so far.
    fn consumed_count(&self) -> &AtomicU32 {
        self.counter(self.offsets.consumer)
    }

    fn entry(&self, number: u32) -> *mut T {
        // SAFETY: the index is below the number of entries, all of which lie in the mapping.
        unsafe {
            let first = self.memory.as_mut_ptr().add(self.offsets.desc as usize).cast::<T>();
            first.add((number & (self.entries - 1)) as usize)
        }
    }
}

/// The end at which this process writes.
pub(crate) struct Producer<T> {
    ring: Mapped<T>,
    /// Entries written so far, those included that are not published yet.
    written: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn map(
        socket: impl AsFd,
        at: u64,
        offsets: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: Mapped::map(socket, at, offsets, entries)?, written: 0 })
    }

    /// Writes one more entry, which the kernel sees with the next [`Producer::publish`]. False if there is no room.
    pub(crate) fn put(&mut self, entry: T) -> bool {
        // Acquire: the kernel has read what is overwritten here.
        let read = self.ring.consumed_count().load(Ordering::Acquire);
        if self.written.wrapping_sub(read) == self.ring.entries {
            return false;
        }
        // SAFETY: the place is this process's until it is published.
        unsafe { self.ring.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    pub(crate) fn publish(&self) {
        // Release: the entries come before the number of them.
        self.ring.produced_count().store(self.written, Ordering::Release);
    }
}

/// The end at which this process reads.
pub(crate) struct Consumer<T> {
    ring: Mapped<T>,
    /// Entries read so far.
    read: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn map(
        socket: impl AsFd,
        at: u64,
        offsets: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        Ok(Self { ring: Mapped::map(socket, at, offsets, entries)?, read: 0 })
    }

    /// The next entry. The kernel has its place again with the next [`Consumer::release`].
    pub(crate) fn take(&mut self) -> Option<T> {
        // Acquire: the entries were written before the number of them.
        if self.ring.produced_count().load(Ordering::Acquire) == self.read {
            return None;
        }
        // SAFETY: the kernel has written the entry, and leaves it alone until it is released.
        let entry = unsafe { self.ring.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    pub(crate) fn release(&self) {
        // Release: the entries were read before their places are given back.
        self.ring.consumed_count().store(self.read, Ordering::Release);
    }
}
