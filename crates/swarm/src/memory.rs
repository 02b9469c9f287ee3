//! A node's payload memory, as a driver keeps it.

use tributary_protocol::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use tributary_reduce::{Accumulation, accumulator_bytes, accumulator_bytes_max};
use tributary_wire::frame::Shape;

/// All arenas of one node. What the machine may not do with them is asserted.
#[derive(Default)]
pub(super) struct Memory {
    /// Indexed by group, which are few and reuse their numbers.
    groups: Vec<Option<Held>>,
    /// Indexed by tree; allocated once, and kept.
    streams: Vec<Option<Held>>,
}

struct Held {
    arena: Arena,
    accumulators: Vec<u8>,
    parked: Vec<u8>,
}

impl Memory {
    pub(super) fn add(&mut self, arena: Arena) {
        assert!(arena.slots.is_power_of_two(), "slots are chosen by wrapping numbers");
        let (slots, payload_bytes) = (usize::from(arena.slots), arena.payload_max_bytes as usize);
        let held = Held {
            arena,
            accumulators: vec![0; slots * accumulator_bytes_max(payload_bytes)],
            parked: vec![0; slots * usize::from(arena.children) * payload_bytes],
        };
        let place = self.place(arena.id);
        let before = place.replace(held);
        assert!(before.is_none(), "an arena's name is used again only after its release");
    }

    /// Sets a tree's memory aside, unless it is there.
    pub(super) fn add_once(&mut self, arena: Arena) {
        if self.place(arena.id).is_none() {
            self.add(arena);
        }
    }

    pub(super) fn release(&mut self, id: ArenaId) {
        assert!(matches!(id, ArenaId::Group(_)), "a tree's memory stays");
        assert!(self.place(id).take().is_some(), "an arena is released once");
    }

    /// Groups that have memory here.
    pub(super) fn groups(&self) -> usize {
        self.groups.iter().flatten().count()
    }

    fn place(&mut self, id: ArenaId) -> &mut Option<Held> {
        let (arenas, index) = match id {
            ArenaId::Group(group) => (&mut self.groups, group.0 as usize),
            ArenaId::Stream(tree) => (&mut self.streams, usize::from(tree.0)),
        };
        if arenas.len() <= index {
            arenas.resize_with(index + 1, || None);
        }
        &mut arenas[index]
    }

    /// The bytes a frame carries.
    pub(super) fn read(&self, at: Place, len_bytes: usize) -> &[u8] {
        assert_eq!(at.lane, Lane::Accumulator, "only results of a reduction travel");
        let held = match at.arena {
            ArenaId::Group(group) => self.groups[group.0 as usize].as_ref(),
            ArenaId::Stream(tree) => self.streams[usize::from(tree.0)].as_ref(),
        };
        let held = held.expect("places lie in living arenas");
        &held.accumulators[held.accumulator(at.slot)..][..len_bytes]
    }

    fn held(&mut self, at: Place) -> &mut Held {
        self.place(at.arena).as_mut().expect("places lie in living arenas")
    }
}

impl Held {
    fn accumulator(&self, slot: u16) -> usize {
        assert!(slot < self.arena.slots);
        usize::from(slot) * accumulator_bytes_max(self.arena.payload_max_bytes as usize)
    }

    fn parked(&self, at: Place) -> usize {
        let Lane::Parked(child) = at.lane else { panic!("an accumulator is no parking place") };
        assert!(at.slot < self.arena.slots && child.0 < self.arena.children);
        let place = usize::from(at.slot) * usize::from(self.arena.children) + usize::from(child.0);
        place * self.arena.payload_max_bytes as usize
    }

    /// The accumulator and the contribution that goes into it.
    fn both<'a>(
        &'a mut self,
        at: Place,
        shape: Shape,
        incoming: Source<'a>,
    ) -> (&'a mut [u8], &'a [u8]) {
        assert!(shape.bytes() <= self.arena.payload_max_bytes as usize, "segments fit");
        let first = self.accumulator(at.slot);
        let source_at = match incoming {
            Source::Frame(_) => 0,
            Source::Parked(place) => self.parked(place),
        };
        let len_bytes = accumulator_bytes(shape.datatype(), shape.elements() as usize);
        let target = &mut self.accumulators[first..][..len_bytes];
        match incoming {
            Source::Frame(bytes) => (target, bytes),
            Source::Parked(_) => (target, &self.parked[source_at..][..shape.bytes()]),
        }
    }
}

fn accumulation(shape: Shape) -> Accumulation {
    Accumulation::new(shape.operator(), shape.datatype()).expect("a header's shape is defined")
}

impl Payloads for Memory {
    fn park(&mut self, at: Place, incoming: &[u8]) {
        let held = self.held(at);
        assert!(incoming.len() <= held.arena.payload_max_bytes as usize, "segments fit");
        let first = held.parked(at);
        held.parked[first..][..incoming.len()].copy_from_slice(incoming);
    }

    fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        let (target, source) = self.held(at).both(at, shape, incoming);
        accumulation(shape).begin(target, source);
    }

    fn fold(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        let (target, source) = self.held(at).both(at, shape, incoming);
        accumulation(shape).fold(target, source);
    }

    fn finish(&mut self, at: Place, shape: Shape) {
        let (target, _) = self.held(at).both(at, shape, Source::Frame(&[]));
        accumulation(shape).finish(target);
    }

    fn store(&mut self, at: Place, incoming: &[u8]) {
        let held = self.held(at);
        assert!(incoming.len() <= held.arena.payload_max_bytes as usize, "segments fit");
        let first = held.accumulator(at.slot);
        held.accumulators[first..][..incoming.len()].copy_from_slice(incoming);
    }
}
