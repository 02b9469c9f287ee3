//! The event queue.

use super::time::Picos;

/// Slots of one wheel: one bit each in a word.
const SLOTS: usize = 64;

/// Bits of a time that select a slot of one wheel.
const DIGIT_BITS: u32 = SLOTS.trailing_zeros();

/// Wheels that 64-bit times need.
const WHEELS: usize = (u64::BITS as usize).div_ceil(DIGIT_BITS as usize);

/// Events of one chunk: with 40 bytes an event and its time, a chunk is ten cache lines.
const CHUNK_EVENTS: usize = 15;

/// A queue of events by time; events of equal time come out in the order in which they went in.
///
/// Hierarchical timing wheels (Varghese and Lauck, SOSP 1987): the wheel of an event is the highest
/// digit, in base 64, in which its time differs from now. An event moves down at most once per wheel,
/// so its cost depends on how far ahead it lies and not on the length of the queue. A slot whose
/// events all have the same time is emptied in place.
///
/// Slots are lists of chunks from one store. The chunk that was emptied last is filled next, so the
/// chunks in use stay in cache, and memory is bounded by the longest queue so far.
#[derive(Debug)]
pub struct EventQueue<E> {
    now: Picos,
    wheels: Vec<Wheel>,
    /// Wheels with events, one bit each.
    occupied: u32,
    store: Store<E>,
    /// The slot being emptied: events of time `now`, all scheduled before those in the wheels.
    current: Option<Reader>,
    len: usize,
    taken: u64,
}

#[derive(Debug)]
struct Wheel {
    /// Slots with events, one bit each.
    occupied: u64,
    slots: [Option<Slot>; SLOTS],
}

/// A slot with events.
#[derive(Clone, Copy, Debug)]
struct Slot {
    first: ChunkId,
    last: ChunkId,
    /// The time of its first event.
    at: Picos,
    /// Whether some event has another time.
    is_mixed: bool,
}

/// How far a list of chunks has been read.
#[derive(Clone, Copy, Debug)]
struct Reader {
    chunk: ChunkId,
    index: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkId(u32);

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Picos,
    event: E,
}

#[derive(Debug)]
struct Chunk<E> {
    entries: [Entry<E>; CHUNK_EVENTS],
    len: usize,
    next: Option<ChunkId>,
}

/// All chunks, and which of them are free.
#[derive(Debug)]
struct Store<E> {
    chunks: Vec<Chunk<E>>,
    free: Vec<ChunkId>,
}

impl<E: Copy> Store<E> {
    fn at(&self, id: ChunkId) -> &Chunk<E> {
        &self.chunks[id.0 as usize]
    }

    /// A chunk that holds one event.
    fn begin(&mut self, entry: Entry<E>) -> ChunkId {
        if let Some(id) = self.free.pop() {
            let chunk = &mut self.chunks[id.0 as usize];
            chunk.entries[0] = entry;
            (chunk.len, chunk.next) = (1, None);
            return id;
        }
        self.chunks.push(Chunk { entries: [entry; CHUNK_EVENTS], len: 1, next: None });
        ChunkId(u32::try_from(self.chunks.len() - 1).expect("fewer than 2^32 chunks"))
    }

    /// Appends an event to a list. Returns the list's last chunk.
    fn push(&mut self, last: ChunkId, entry: Entry<E>) -> ChunkId {
        let chunk = &mut self.chunks[last.0 as usize];
        if let Some(place) = chunk.entries.get_mut(chunk.len) {
            *place = entry;
            chunk.len += 1;
            return last;
        }
        let next = self.begin(entry);
        self.chunks[last.0 as usize].next = Some(next);
        next
    }

    /// The next event of a list; a chunk is free once its last event is read.
    fn read(&mut self, reader: Reader) -> (Entry<E>, Option<Reader>) {
        let Reader { chunk: id, index } = reader;
        let chunk = self.at(id);
        let entry = chunk.entries[index];
        if index + 1 < chunk.len {
            return (entry, Some(Reader { chunk: id, index: index + 1 }));
        }
        let next = chunk.next.map(|chunk| Reader { chunk, index: 0 });
        self.free.push(id);
        (entry, next)
    }
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        let wheel = || Wheel { occupied: 0, slots: [None; SLOTS] };
        Self {
            now: Picos::ZERO,
            wheels: (0..WHEELS).map(|_| wheel()).collect(),
            occupied: 0,
            store: Store { chunks: Vec::new(), free: Vec::new() },
            current: None,
            len: 0,
            taken: 0,
        }
    }
}

impl<E: Copy> EventQueue<E> {
    /// The time of the event taken last.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Events in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Events taken so far.
    #[must_use]
    pub fn events_taken(&self) -> u64 {
        self.taken
    }

    /// Adds an event.
    ///
    /// # Panics
    /// If `at` is in the past.
    pub fn schedule(&mut self, at: Picos, event: E) {
        assert!(at >= self.now, "an event for {at:?} is scheduled at {:?}", self.now);
        self.len += 1;
        self.insert(Entry { at, event });
    }

    /// The next event; its time becomes now.
    pub fn take(&mut self) -> Option<E> {
        while self.current.is_none() {
            let wheel = self.occupied.trailing_zeros() as usize;
            if wheel >= WHEELS {
                return None;
            }
            let slot = self.vacate_first(wheel);
            let reader = Reader { chunk: slot.first, index: 0 };
            if slot.is_mixed {
                self.move_down(wheel, slot.at, reader);
            } else {
                self.now = slot.at;
                self.current = Some(reader);
            }
        }
        let reader = self.current?;
        let (entry, rest) = self.store.read(reader);
        self.current = rest;
        self.len -= 1;
        self.taken += 1;
        Some(entry.event)
    }

    /// Moves a slot of a higher wheel down to the lower ones, which are empty. The clock advances to
    /// the start of the slot, so all its events fall into lower wheels, in the same order.
    fn move_down(&mut self, wheel: usize, first: Picos, reader: Reader) {
        let shift = DIGIT_BITS * wheel as u32;
        self.now = Picos(first.0 >> shift << shift);
        let mut rest = Some(reader);
        while let Some(reader) = rest {
            let (entry, next) = self.store.read(reader);
            self.insert(entry);
            rest = next;
        }
    }

    fn insert(&mut self, entry: Entry<E>) {
        let differing = (entry.at.0 ^ self.now.0) | 1;
        let wheel = ((u64::BITS - 1 - differing.leading_zeros()) / DIGIT_BITS) as usize;
        let place = (entry.at.0 >> (DIGIT_BITS * wheel as u32)) as usize % SLOTS;
        let Wheel { occupied, slots } = &mut self.wheels[wheel];
        if let Some(slot) = &mut slots[place] {
            slot.last = self.store.push(slot.last, entry);
            slot.is_mixed |= slot.at != entry.at;
            return;
        }
        let chunk = self.store.begin(entry);
        slots[place] = Some(Slot { first: chunk, last: chunk, at: entry.at, is_mixed: false });
        *occupied |= 1 << place;
        self.occupied |= 1 << wheel;
    }

    /// Takes what the first occupied slot of a wheel holds.
    fn vacate_first(&mut self, wheel: usize) -> Slot {
        let Wheel { occupied, slots } = &mut self.wheels[wheel];
        let place = occupied.trailing_zeros() as usize;
        let slot = slots[place].take().expect("an occupied slot holds an event");
        *occupied &= !(1 << place);
        if *occupied == 0 {
            self.occupied &= !(1 << wheel);
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Random;

    #[test]
    fn events_come_in_order_of_time_then_of_scheduling() {
        let mut random = Random::new(7);
        let mut queue = EventQueue::default();
        let mut expected: Vec<(u64, u32)> = Vec::new();
        let mut got = Vec::new();
        for number in 0..20_000_u32 {
            let spread = 1_u64 << random.below(34);
            let at = queue.now().0 + random.below(spread) / 3 * 3;
            queue.schedule(Picos(at), (at, number));
            expected.push((at, number));
            while random.below(3) == 0 {
                got.extend(queue.take());
            }
        }
        while let Some(event) = queue.take() {
            assert_eq!(queue.now().0, event.0);
            got.push(event);
        }
        // `take` and `schedule` alternate; still all events come in order, those of equal time by number.
        assert!(got.is_sorted());
        expected.sort_unstable();
        assert_eq!(got, expected);
        assert!(queue.is_empty());
    }

    #[test]
    #[should_panic(expected = "is scheduled at")]
    fn the_past_is_refused() {
        let mut queue = EventQueue::default();
        queue.schedule(Picos(5), ());
        queue.take();
        queue.schedule(Picos(4), ());
    }
}
