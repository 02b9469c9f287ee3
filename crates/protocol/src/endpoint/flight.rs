//! The segments in flight.

use alloc::boxed::Box;
use alloc::vec;

use tributary_wire::Sequence;
use tributary_wire::frame::Part;

/// The sequence numbers from the oldest incomplete one to the next to send.
#[derive(Debug)]
pub(super) struct Flight {
    osos: u32,
    oldest: Sequence,
    next: Sequence,
    /// The request under each sequence number; none once it is complete. Indexed by the number
    /// modulo the length, a power of two, so that numbers map to places across the wrap.
    requests: Box<[Option<Part>]>,
}

impl Flight {
    pub(super) fn new(osos: u16) -> Self {
        let places = usize::from(osos).next_power_of_two();
        Self {
            osos: u32::from(osos),
            oldest: Sequence::FIRST,
            next: Sequence::FIRST,
            requests: vec![None; places].into_boxed_slice(),
        }
    }

    /// Forgets everything.
    pub(super) fn start_over(&mut self) {
        (self.oldest, self.next) = (Sequence::FIRST, Sequence::FIRST);
        self.requests.fill(None);
    }

    /// How many are complete, counted from the first without a gap.
    pub(super) fn complete_in_order(&self) -> u32 {
        self.oldest.distance_from(Sequence::FIRST)
    }

    /// Of every number from the oldest incomplete one to the newest sent, whether it is complete.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = bool> {
        let numbers = self.next.distance_from(self.oldest);
        (0..numbers).map(|index| {
            let sequence = Sequence(self.oldest.0.wrapping_add(index));
            self.requests[self.place(sequence)].is_none()
        })
    }

    pub(super) fn next_sequence(&self) -> Sequence {
        self.next
    }

    pub(super) fn has_room(&self) -> bool {
        self.next.distance_from(self.oldest) < self.osos
    }

    pub(super) fn push(&mut self, part: &Part) {
        debug_assert!(self.has_room());
        debug_assert_eq!(part.sequence, self.next);
        self.requests[self.place(part.sequence)] = Some(*part);
        self.next = self.next.next();
    }

    /// Whether a result for this number was already taken. Half of all numbers count as past.
    pub(super) fn is_past(&self, sequence: Sequence) -> bool {
        let behind = self.oldest.distance_from(sequence);
        let is_behind = (1..1 << 31).contains(&behind);
        let is_within = sequence.distance_from(self.oldest) < self.next.distance_from(self.oldest);
        is_behind || (is_within && self.requests[self.place(sequence)].is_none())
    }

    /// Whether a result describes the same segment as its request. They may differ in whether data
    /// follow: a completion has none, and a broadcast's request may have had none.
    pub(super) fn expects(&self, part: &Part) -> bool {
        let is_within =
            part.sequence.distance_from(self.oldest) < self.next.distance_from(self.oldest);
        is_within
            && self.requests[self.place(part.sequence)]
                .is_some_and(|requested| requested.is_same_segment(part))
    }

    /// The request under a number that is in flight.
    pub(super) fn request_of(&self, sequence: Sequence) -> Option<&Part> {
        self.requests[self.place(sequence)].as_ref().filter(|part| part.sequence == sequence)
    }

    pub(super) fn complete(&mut self, sequence: Sequence) {
        let place = self.place(sequence);
        self.requests[place] = None;
        while self.oldest != self.next && self.requests[self.place(self.oldest)].is_none() {
            self.oldest = self.oldest.next();
        }
    }

    fn place(&self, sequence: Sequence) -> usize {
        sequence.0 as usize & (self.requests.len() - 1)
    }
}
