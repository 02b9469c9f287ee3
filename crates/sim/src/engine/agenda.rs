//! What is to happen, in order of time.

use super::Picos;

/// Slots of one wheel: one bit each in a word.
const SLOTS: usize = 64;

/// Bits of a time that one wheel looks at.
const DIGIT_BITS: u32 = SLOTS.trailing_zeros();

/// Wheels that 64-bit times need.
const WHEELS: usize = (u64::BITS as usize).div_ceil(DIGIT_BITS as usize);

/// A queue of events by time; events of equal time come out in the order in which they went in.
///
/// Hierarchical timing wheels (Varghese and Lauck, SOSP 1987): the wheel of an event is the highest
/// digit, in base 64, in which its time differs from now. An event moves down once per wheel at
/// most, so its cost depends on how far ahead it lies and not on how many others wait.
#[derive(Debug)]
pub struct Agenda<E> {
    now: Picos,
    wheels: Vec<Wheel<E>>,
    /// Wheels that hold anything, one bit each.
    occupied: u32,
    /// The next event of the slot that is being emptied: slot `now` of wheel 0.
    cursor: usize,
    len: usize,
    taken: u64,
}

#[derive(Debug)]
struct Wheel<E> {
    /// Slots that hold anything, one bit each.
    occupied: u64,
    slots: Vec<Vec<Entry<E>>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Picos,
    event: E,
}

impl<E: Copy> Default for Agenda<E> {
    fn default() -> Self {
        let wheel = || Wheel { occupied: 0, slots: (0..SLOTS).map(|_| Vec::new()).collect() };
        let wheels = (0..WHEELS).map(|_| wheel()).collect();
        Self { now: Picos::ZERO, wheels, occupied: 0, cursor: 0, len: 0, taken: 0 }
    }
}

impl<E: Copy> Agenda<E> {
    /// The time of the event that was last taken.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Events taken so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Puts an event on the agenda.
    ///
    /// # Panics
    /// If `at` is over: time does not run backwards.
    pub fn schedule(&mut self, at: Picos, event: E) {
        assert!(at >= self.now, "an event for {at:?} is scheduled at {:?}", self.now);
        self.len += 1;
        self.insert(Entry { at, event });
    }

    /// The next event; its time becomes now.
    pub fn take(&mut self) -> Option<E> {
        loop {
            let wheel = self.occupied.trailing_zeros() as usize;
            if wheel >= WHEELS {
                return None;
            }
            let slot = self.wheels[wheel].occupied.trailing_zeros() as usize;
            if wheel == 0 {
                return Some(self.take_from(slot));
            }
            self.descend(wheel, slot);
        }
    }

    fn take_from(&mut self, slot: usize) -> E {
        let entries = &mut self.wheels[0].slots[slot];
        let entry = entries[self.cursor];
        self.now = entry.at;
        self.cursor += 1;
        if self.cursor == entries.len() {
            entries.clear();
            self.cursor = 0;
            self.vacate(0, slot);
        }
        self.len -= 1;
        self.taken += 1;
        entry.event
    }

    /// Deals a slot of a higher wheel out over the lower ones, which are empty. The clock moves to
    /// the slot's beginning, so that all of its events fall into lower wheels, in the same order.
    fn descend(&mut self, wheel: usize, slot: usize) {
        let mut entries = core::mem::take(&mut self.wheels[wheel].slots[slot]);
        self.vacate(wheel, slot);
        let shift = DIGIT_BITS * wheel as u32;
        let first = entries.first().expect("an occupied slot holds an event").at;
        self.now = Picos(first.0 >> shift << shift);
        for entry in entries.drain(..) {
            self.insert(entry);
        }
        self.wheels[wheel].slots[slot] = entries;
    }

    fn insert(&mut self, entry: Entry<E>) {
        let differing = (entry.at.0 ^ self.now.0) | 1;
        let wheel = ((u64::BITS - 1 - differing.leading_zeros()) / DIGIT_BITS) as usize;
        let slot = (entry.at.0 >> (DIGIT_BITS * wheel as u32)) as usize % SLOTS;
        self.wheels[wheel].slots[slot].push(entry);
        self.wheels[wheel].occupied |= 1 << slot;
        self.occupied |= 1 << wheel;
    }

    fn vacate(&mut self, wheel: usize, slot: usize) {
        self.wheels[wheel].occupied &= !(1 << slot);
        if self.wheels[wheel].occupied == 0 {
            self.occupied &= !(1 << wheel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Chance;

    #[test]
    fn events_come_in_order_of_time_then_of_scheduling() {
        let mut chance = Chance::new(7);
        let mut agenda = Agenda::default();
        let mut expected: Vec<(u64, u32)> = Vec::new();
        let mut got = Vec::new();
        for number in 0..20_000_u32 {
            let spread = 1_u64 << chance.below(34);
            let at = agenda.now().0 + chance.below(spread) / 3 * 3;
            agenda.schedule(Picos(at), (at, number));
            expected.push((at, number));
            while chance.below(3) == 0 {
                got.extend(agenda.take());
            }
        }
        while let Some(event) = agenda.take() {
            assert_eq!(agenda.now().0, event.0);
            got.push(event);
        }
        // Taking interleaves with scheduling, so order holds among all, and by number among equals.
        assert!(got.is_sorted());
        expected.sort_unstable();
        assert_eq!(got, expected);
        assert!(agenda.is_empty());
    }

    #[test]
    #[should_panic(expected = "is scheduled at")]
    fn the_past_is_refused() {
        let mut agenda = Agenda::default();
        agenda.schedule(Picos(5), ());
        agenda.take();
        agenda.schedule(Picos(4), ());
    }
}
