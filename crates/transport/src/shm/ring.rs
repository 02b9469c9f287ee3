//! The protocol of one ring: publish, consume, wait for data, wait for room.
//!
//! Generic over [`Memory`], so that the model checker runs the same code on its own atomics.
//!
//! Positions count bytes from the ring's beginning and never wrap (64 bits); a record starts at a
//! multiple of [`LINE_BYTES`] and is a header line followed by payload lines. The first word of a
//! header line is the *ready word*. A record is published by storing its ready word last, after
//! the ready word of the record to come has been zeroed, so a consumer that has consumed a record
//! always finds zero or a published record after it, never old payload.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use tributary_wire::frame::HEADER_BYTES;

/// A cache line, and the granularity of records.
pub(super) const LINE_BYTES: usize = 64;

const _: () = assert!(HEADER_BYTES == LINE_BYTES);

/// The shared memory of one ring, as the protocol sees it. `at` is a position modulo the ring size.
pub(super) trait Memory {
    /// Size of the ring; a power of two.
    fn ring_bytes(&self) -> usize;
    /// Loads a ready word.
    fn ready(&self, at: usize, order: Ordering) -> u32;
    /// Stores a ready word.
    fn set_ready(&self, at: usize, ready: u32, order: Ordering);
    /// Writes a record except for its ready word, that is, except for the first 4 bytes of
    /// `header`.
    fn write(&self, at: usize, header: &[u8; HEADER_BYTES], payload: &[u8]);
    /// Copies a header, ready word included.
    fn read_header(&self, at: usize) -> [u8; HEADER_BYTES];
    /// The payload of the record at `at`; `payload_bytes` is at most the ring size less a line.
    fn payload(&self, at: usize, payload_bytes: usize) -> &[u8];
    /// Loads how far the consumer has released the ring.
    fn load_released(&self, order: Ordering) -> u64;
    /// Stores how far the consumer has released the ring.
    fn set_released(&self, released: u64, order: Ordering);
    /// The word in which the named side says that it sleeps: zero, or the number of its sleep.
    fn waiting(&self, side: Side, order: Ordering) -> u64;
    /// Stores that word. Only the side it is named for does.
    fn set_waiting(&self, side: Side, waiting: u64, order: Ordering);
    /// A sequentially consistent fence.
    fn fence(&self);
}

/// An end of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Producer,
    Consumer,
}

/// An impossible claim of a consumer about what it has consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadReleased {
    pub(super) claimed: u64,
    pub(super) written: u64,
}

/// Bytes of ring that a frame occupies.
pub(super) const fn record_bytes(payload_bytes: usize) -> usize {
    LINE_BYTES + payload_bytes.next_multiple_of(LINE_BYTES)
}

/// One end's record of its own sleeps and of the other end's.
///
/// Each end numbers its sleeps. The other end remembers which sleep it has woken, so it rings once
/// per sleep, and each word has one writer.
#[derive(Default)]
struct Sleeps {
    own: u64,
    woken: u64,
}

impl Sleeps {
    /// Says that `side`, this end, sleeps. The caller must poll again before it sleeps.
    fn begin<M: Memory>(&mut self, memory: &M, side: Side) {
        self.own += 1;
        memory.set_waiting(side, self.own, Relaxed);
        // Orders the store above before the caller's second poll; partner is the fence in
        // `must_wake`.
        memory.fence();
    }

    /// Takes back what `begin` said.
    fn end<M: Memory>(&mut self, memory: &M, side: Side) {
        // Relaxed: if the other end sees it late, it rings for nothing.
        memory.set_waiting(side, 0, Relaxed);
    }

    /// True if `side`, the other end, sleeps and hasn't been woken yet. The caller has stored what
    /// the other end waits for. The fence orders that store before the load; partner is the fence
    /// in `begin`. So at least one of the two ends sees the other's store.
    fn must_wake<M: Memory>(&mut self, memory: &M, side: Side) -> bool {
        memory.fence();
        let sleep = memory.waiting(side, Relaxed);
        let must = sleep != 0 && sleep != self.woken;
        if must {
            self.woken = sleep;
        }
        must
    }
}

/// The end that writes.
pub(super) struct Producer<M> {
    memory: M,
    written: u64,
    /// The last `released` seen: at most what the consumer has really released.
    released: u64,
    sleeps: Sleeps,
}

/// What became of a record offered to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// Published; the consumer sleeps and is to be woken.
    Wake,
    /// Published.
    Quiet,
    /// No room.
    Full,
}

impl<M: Memory> Producer<M> {
    /// The producer of a ring whose memory is all zero.
    pub(super) fn new(memory: M) -> Self {
        Self { memory, written: 0, released: 0, sleeps: Sleeps::default() }
    }

    fn at(&self, position: u64) -> usize {
        (position & (self.memory.ring_bytes() as u64 - 1)) as usize
    }

    /// Whether a record of `record_bytes` and the ready word after it fit.
    pub(super) fn has_room(&mut self, record_bytes: usize) -> Result<bool, BadReleased> {
        let need = self.written + (record_bytes + LINE_BYTES) as u64;
        let ring_bytes = self.memory.ring_bytes() as u64;
        if need <= self.released + ring_bytes {
            return Ok(true);
        }
        // Acquire: partner is the Release store in `Consumer::release`; the consumer has read what
        // it released before this side writes over it.
        let claimed = self.memory.load_released(Acquire);
        let line = LINE_BYTES as u64;
        if claimed < self.released || claimed > self.written || !claimed.is_multiple_of(line) {
            return Err(BadReleased { claimed, written: self.written });
        }
        self.released = claimed;
        Ok(need <= claimed + ring_bytes)
    }

    /// Publishes a record, if there is room. The first 4 bytes of `header` must not all be zero.
    pub(super) fn push(
        &mut self,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
    ) -> Result<Push, BadReleased> {
        let record_bytes = record_bytes(payload.len());
        if !self.has_room(record_bytes)? {
            return Ok(Push::Full);
        }
        let at = self.write(header, payload);
        let ready = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        // Release: partner is the Acquire load in `Consumer::peek`. A consumer that sees the ready
        // word also sees the record and the zero after it.
        self.memory.set_ready(at, ready, Release);
        self.written += record_bytes as u64;
        Ok(if self.sleeps.must_wake(&self.memory, Side::Consumer) {
            Push::Wake
        } else {
            Push::Quiet
        })
    }

    /// Writes a record without publishing it, as a process does that dies here. There must be room.
    pub(super) fn write(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> usize {
        let at = self.at(self.written);
        let next = self.at(self.written + record_bytes(payload.len()) as u64);
        // Relaxed: ordered by the Release store that publishes this record.
        self.memory.set_ready(next, 0, Relaxed);
        self.memory.write(at, header, payload);
        at
    }

    /// Says that this side sleeps until there is room. Poll `has_room` again before sleeping.
    pub(super) fn arm(&mut self) {
        self.sleeps.begin(&self.memory, Side::Producer);
    }

    /// Takes back what `arm` said.
    pub(super) fn disarm(&mut self) {
        self.sleeps.end(&self.memory, Side::Producer);
    }
}

/// The end that reads.
pub(super) struct Consumer<M> {
    memory: M,
    read: u64,
    /// Bytes of the record in use, which the producer may not overwrite yet.
    held: usize,
    /// Bytes released since this side last checked whether the producer sleeps.
    unannounced: usize,
    sleeps: Sleeps,
}

impl<M: Memory> Consumer<M> {
    /// The consumer of a ring whose memory is all zero.
    pub(super) fn new(memory: M) -> Self {
        Self { memory, read: 0, held: 0, unannounced: 0, sleeps: Sleeps::default() }
    }

    fn at(&self) -> usize {
        (self.read & (self.memory.ring_bytes() as u64 - 1)) as usize
    }

    /// Whether a record has been published after the ones held or released.
    pub(super) fn has_record(&self) -> bool {
        debug_assert_eq!(self.held, 0);
        self.memory.ready(self.at(), Relaxed) != 0
    }

    /// A copy of the next record's header, if one has been published. Nothing is held.
    pub(super) fn peek(&self) -> Option<[u8; HEADER_BYTES]> {
        debug_assert_eq!(self.held, 0);
        // Acquire: partner is the Release store in `Producer::push`.
        if self.memory.ready(self.at(), Acquire) == 0 {
            return None;
        }
        Some(self.memory.read_header(self.at()))
    }

    /// Holds the record just peeked at and returns its payload. The caller has checked the length
    /// against this link's limit, which is less than the ring.
    pub(super) fn take(&mut self, payload_bytes: usize) -> &[u8] {
        self.held = record_bytes(payload_bytes);
        assert!(self.held < self.memory.ring_bytes(), "records are shorter than their ring");
        self.memory.payload(self.at(), payload_bytes)
    }

    /// Gives back the record held, if any. True if the producer is to be woken. That check costs a
    /// fence, so it happens once per quarter of the ring: a consumer that stops earlier has to call
    /// `announce`.
    pub(super) fn release(&mut self) -> bool {
        if self.held == 0 {
            return false;
        }
        self.read += self.held as u64;
        self.unannounced += self.held;
        self.held = 0;
        // Release: partner is the Acquire load in `Producer::has_room`.
        self.memory.set_released(self.read, Release);
        self.unannounced >= self.memory.ring_bytes() / 4 && self.announce()
    }

    /// True if the producer is to be woken for the bytes released since the last check.
    pub(super) fn announce(&mut self) -> bool {
        if self.unannounced == 0 {
            return false;
        }
        self.unannounced = 0;
        self.sleeps.must_wake(&self.memory, Side::Producer)
    }

    /// Says that this side sleeps until there is a record. Poll `has_record` again before sleeping.
    pub(super) fn arm(&mut self) {
        self.sleeps.begin(&self.memory, Side::Consumer);
    }

    /// Takes back what `arm` said.
    pub(super) fn disarm(&mut self) {
        self.sleeps.end(&self.memory, Side::Consumer);
    }
}
#[cfg(test)]
mod model;
