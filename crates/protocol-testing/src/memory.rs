//! An aggregator driver's payload memory.

use std::collections::BTreeMap;

use tributary_protocol::node::Node;
use tributary_protocol::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use tributary_reduce::{Accumulation, accumulator_bytes, accumulator_bytes_max};
use tributary_wire::GroupId;
use tributary_wire::frame::{Header, Shape};

use crate::order::Order;

/// What a frame carries that is read from a slot after its next use.
const STALE: u8 = 0xEE;

/// All arenas of one aggregator, with the product's kernels. Places must lie in living arenas; memory of
/// [`NodeMemory::with_checks`] asserts the whole contract of [`Payloads`], in any other a wrong order of calls shows in the
/// results.
#[derive(Debug, Default)]
pub struct NodeMemory {
    arenas: BTreeMap<ArenaId, Held>,
    order: Option<Order>,
}

#[derive(Debug)]
struct Held {
    arena: Arena,
    accumulators: Vec<u8>,
    /// One place for each slot and child.
    parked: Vec<u8>,
}

impl NodeMemory {
    /// Memory that asserts the contract. Stale reads are for drivers in which a frame may be sent twice,
    /// so that an answer to a repeat can be overtaken by the next use of its slot.
    #[must_use]
    pub fn with_checks(allows_stale_reads: bool) -> Self {
        Self { order: Some(Order::new(allows_stale_reads)), ..Self::default() }
    }

    /// Sets memory aside for a group that was just installed, and for its tree's streams if those have
    /// none yet.
    ///
    /// # Panics
    /// If the group's arena has a name that is in use, or the tree's has changed.
    pub fn install(&mut self, node: &Node, group: GroupId, arena: Arena) {
        assert!(!self.arenas.contains_key(&arena.id), "a name is used again after its release");
        self.add(arena);
        if let Some(arena) = node.stream_arena(group) {
            match self.arenas.get(&arena.id) {
                Some(held) => assert_eq!(held.arena, arena, "one arena per tree"),
                None => self.add(arena),
            }
        }
    }

    fn add(&mut self, arena: Arena) {
        self.arenas.insert(arena.id, Held::new(arena));
        if let Some(order) = &mut self.order {
            order.add(arena);
        }
    }

    /// Frees what an aggregator has released.
    ///
    /// # Panics
    /// If it is not there, or is a tree's, which stays.
    pub fn release(&mut self, id: ArenaId) {
        assert!(matches!(id, ArenaId::Group(_)), "a tree's memory stays");
        assert!(self.arenas.remove(&id).is_some(), "an arena is released once");
        if let Some(order) = &mut self.order {
            order.release(id);
        }
    }

    /// Groups that have memory here.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.arenas.keys().filter(|id| matches!(id, ArenaId::Group(_))).count()
    }

    /// Tells checked memory whose frame the aggregator is about to handle.
    pub fn expect(&mut self, header: &Header) {
        if let Some(order) = &mut self.order {
            order.sender = header.edge.child;
        }
    }

    /// Appends the bytes that a frame carries.
    ///
    /// # Panics
    /// If the place is none for results; and if checked memory holds no result of that length there.
    pub fn append(&self, at: Place, len_bytes: usize, bytes: &mut Vec<u8>) {
        let held = self.arenas.get(&at.arena).expect("places lie in living arenas");
        let first = held.accumulator(at);
        if self.order.as_ref().is_none_or(|order| order.is_readable(at, len_bytes)) {
            bytes.extend_from_slice(&held.accumulators[first..][..len_bytes]);
        } else {
            bytes.resize(bytes.len() + len_bytes, STALE);
        }
    }

    fn arena_of(&mut self, at: Place) -> &mut Held {
        self.arenas.get_mut(&at.arena).expect("places lie in living arenas")
    }
}

impl Held {
    fn new(arena: Arena) -> Self {
        assert!(arena.slots.is_power_of_two(), "slots are chosen by wrapping numbers");
        let (slots, payload_bytes) = (usize::from(arena.slots), arena.payload_max_bytes as usize);
        Self {
            arena,
            accumulators: vec![0; slots * accumulator_bytes_max(payload_bytes)],
            parked: vec![0; slots * usize::from(arena.children) * payload_bytes],
        }
    }

    fn payload_max_bytes(&self) -> usize {
        self.arena.payload_max_bytes as usize
    }

    /// Where an accumulator begins.
    fn accumulator(&self, at: Place) -> usize {
        assert_eq!(at.lane, Lane::Accumulator, "only results of a reduction travel");
        assert!(at.slot < self.arena.slots);
        usize::from(at.slot) * accumulator_bytes_max(self.payload_max_bytes())
    }

    /// Where a parked contribution begins.
    fn parked_offset(&self, at: Place) -> usize {
        let Lane::Parked(child) = at.lane else { panic!("an accumulator is no parking place") };
        assert!(at.slot < self.arena.slots && child.0 < self.arena.children);
        let place = usize::from(at.slot) * usize::from(self.arena.children) + usize::from(child.0);
        place * self.payload_max_bytes()
    }

    /// The accumulator and the contribution that goes into it.
    fn both<'a>(
        &'a mut self,
        at: Place,
        shape: Shape,
        incoming: Source<'a>,
    ) -> (&'a mut [u8], &'a [u8]) {
        assert!(shape.bytes() <= self.payload_max_bytes(), "segments fit");
        let first = self.accumulator(at);
        let len_bytes = accumulator_bytes(shape.datatype(), shape.elements() as usize);
        let source = match incoming {
            Source::Frame(bytes) => bytes,
            Source::Parked(place) => {
                assert_eq!(place.arena, at.arena, "what is parked is its group's");
                let source_at = self.parked_offset(place);
                &self.parked[source_at..][..shape.bytes()]
            }
        };
        (&mut self.accumulators[first..][..len_bytes], source)
    }
}

fn accumulation(shape: Shape) -> Accumulation {
    Accumulation::new(shape.operator(), shape.datatype()).expect("a header's shape is defined")
}

impl Payloads for NodeMemory {
    fn park(&mut self, at: Place, incoming: &[u8]) {
        if let Some(order) = &mut self.order {
            order.park(at, incoming.len());
        }
        let held = self.arena_of(at);
        assert!(incoming.len() <= held.payload_max_bytes(), "segments fit");
        let first = held.parked_offset(at);
        held.parked[first..][..incoming.len()].copy_from_slice(incoming);
    }

    fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        if let Some(order) = &mut self.order {
            order.begin(at, shape, incoming);
        }
        let (target, source) = self.arena_of(at).both(at, shape, incoming);
        accumulation(shape).begin(target, source);
    }

    fn fold(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        if let Some(order) = &mut self.order {
            order.fold(at, shape, incoming);
        }
        let (target, source) = self.arena_of(at).both(at, shape, incoming);
        accumulation(shape).fold(target, source);
    }

    fn finish(&mut self, at: Place, shape: Shape) {
        if let Some(order) = &mut self.order {
            order.finish(at, shape);
        }
        let (target, _) = self.arena_of(at).both(at, shape, Source::Frame(&[]));
        accumulation(shape).finish(target);
    }

    fn store(&mut self, at: Place, incoming: &[u8]) {
        if let Some(order) = &mut self.order {
            order.store(at, incoming.len());
        }
        let held = self.arena_of(at);
        assert!(incoming.len() <= held.payload_max_bytes(), "segments fit");
        let first = held.accumulator(at);
        held.accumulators[first..][..incoming.len()].copy_from_slice(incoming);
    }
}
