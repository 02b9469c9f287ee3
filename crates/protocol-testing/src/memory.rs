//! A node driver's payload memory. It checks every call against the contract of [`Payloads`].

use std::collections::BTreeMap;

use tributary_protocol::node::Node;
use tributary_protocol::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use tributary_reduce::{Accumulation, accumulator_bytes, accumulator_bytes_max};
use tributary_wire::frame::{Header, Shape};
use tributary_wire::{ChildIndex, GroupId};

/// Payload of a frame that is read from a slot after the slot was used again.
const STALE: u8 = 0xEE;

/// All arenas of one node, with the product's kernels. Asserts the contract.
#[derive(Debug)]
pub struct NodeMemory {
    arenas: BTreeMap<ArenaId, ArenaMemory>,
    /// The child whose frame is being handled, because [`Source::Frame`] does not name it.
    sender: ChildIndex,
    allows_stale_reads: bool,
}

#[derive(Debug)]
struct ArenaMemory {
    arena: Arena,
    slots: Vec<Slot>,
    accumulators: Vec<u8>,
    /// A parking place for each slot and child, and how many bytes are parked there.
    parked: Vec<u8>,
    parked_bytes: Vec<Option<usize>>,
}

/// State of an accumulator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Slot {
    #[default]
    Unused,
    Reducing {
        shape: Shape,
        counted: u16,
    },
    Wire {
        len_bytes: usize,
    },
}

impl NodeMemory {
    /// No arenas. Stale reads are for drivers in which a frame may be sent twice, so that the slot
    /// of an answer to a repeat can be used again before the answer is read.
    #[must_use]
    pub fn new(allows_stale_reads: bool) -> Self {
        Self { arenas: BTreeMap::new(), sender: ChildIndex(0), allows_stale_reads }
    }

    /// Allocates the arena of a group that was just installed, and that of its tree's streams if
    /// there is none yet.
    ///
    /// # Panics
    /// If the group's arena exists already, or the tree's has changed.
    pub fn install(&mut self, node: &Node, group: GroupId, arena: Arena) {
        let before = self.arenas.insert(arena.id, ArenaMemory::new(arena));
        assert!(before.is_none(), "an arena's name is used again only after its release");
        if let Some(arena) = node.stream_arena(group) {
            assert!(matches!(arena.id, ArenaId::Stream(_)));
            let memory = self.arenas.entry(arena.id).or_insert_with(|| ArenaMemory::new(arena));
            assert_eq!(memory.arena, arena, "one arena per tree");
        }
    }

    /// Frees an arena that a node has released.
    ///
    /// # Panics
    /// If it does not exist, or belongs to a tree, whose arena stays.
    pub fn release(&mut self, id: ArenaId) {
        assert!(matches!(id, ArenaId::Group(_)), "a tree's memory stays");
        assert!(self.arenas.remove(&id).is_some(), "an arena is released once");
    }

    /// Groups that have an arena here.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.arenas.keys().filter(|id| matches!(id, ArenaId::Group(_))).count()
    }

    /// Notes which child's frame the node is about to handle.
    pub fn expect(&mut self, header: &Header) {
        self.sender = header.edge.child;
    }

    /// Appends the payload of a frame.
    ///
    /// # Panics
    /// If the place holds no result of that length, unless stale reads are allowed.
    pub fn append(&self, at: Place, len_bytes: usize, bytes: &mut Vec<u8>) {
        assert_eq!(at.lane, Lane::Accumulator, "only results of a reduction travel");
        let memory = self.arenas.get(&at.arena).expect("places lie in living arenas");
        let slot = memory.slots[usize::from(at.slot)];
        if slot == (Slot::Wire { len_bytes }) {
            bytes.extend_from_slice(&memory.accumulators[memory.accumulator(at)..][..len_bytes]);
        } else {
            assert!(self.allows_stale_reads, "a frame carries a whole result, not {slot:?}");
            bytes.resize(bytes.len() + len_bytes, STALE);
        }
    }

    fn memory(&mut self, at: Place) -> &mut ArenaMemory {
        self.arenas.get_mut(&at.arena).expect("places lie in living arenas")
    }
}

impl ArenaMemory {
    fn new(arena: Arena) -> Self {
        assert!(arena.slots.is_power_of_two(), "slots are chosen by wrapping numbers");
        let (slots, payload_bytes) = (usize::from(arena.slots), arena.payload_max_bytes as usize);
        let places = slots * usize::from(arena.children);
        Self {
            arena,
            slots: vec![Slot::Unused; slots],
            accumulators: vec![0; slots * accumulator_bytes_max(payload_bytes)],
            parked: vec![0; places * payload_bytes],
            parked_bytes: vec![None; places],
        }
    }

    /// A group that fails in the middle leaves its tree's slots to the next group as they are.
    fn is_shared(&self) -> bool {
        matches!(self.arena.id, ArenaId::Stream(_))
    }

    fn payload_max_bytes(&self) -> usize {
        self.arena.payload_max_bytes as usize
    }

    /// Where an accumulator begins.
    fn accumulator(&self, at: Place) -> usize {
        assert_eq!(at.lane, Lane::Accumulator);
        usize::from(at.slot) * accumulator_bytes_max(self.payload_max_bytes())
    }

    /// The index of a parking place, and its child.
    fn parking_place(&self, at: Place) -> (usize, ChildIndex) {
        let Lane::Parked(child) = at.lane else { panic!("an accumulator is no parking place") };
        assert!(at.slot < self.arena.slots && child.0 < self.arena.children);
        let place = usize::from(at.slot) * usize::from(self.arena.children) + usize::from(child.0);
        (place, child)
    }

    /// The accumulator, the contribution that is reduced into it, and the child that it comes from.
    fn both<'a>(
        &'a mut self,
        at: Place,
        shape: Shape,
        incoming: Source<'a>,
        sender: ChildIndex,
    ) -> (&'a mut [u8], &'a [u8], ChildIndex) {
        assert!(shape.bytes() <= self.payload_max_bytes(), "segments fit");
        let first = self.accumulator(at);
        let (bytes, child) = match incoming {
            Source::Frame(bytes) => (bytes, sender),
            Source::Parked(place) => {
                assert_eq!((place.arena, place.slot), (at.arena, at.slot));
                let (index, child) = self.parking_place(place);
                let len_bytes = self.parked_bytes[index].take();
                let len_bytes = len_bytes.expect("only what was parked is taken, and once");
                (&self.parked[index * self.arena.payload_max_bytes as usize..][..len_bytes], child)
            }
        };
        assert_eq!(bytes.len(), shape.bytes());
        let len_bytes = accumulator_bytes(shape.datatype(), shape.elements() as usize);
        (&mut self.accumulators[first..][..len_bytes], bytes, child)
    }
}

fn accumulation(shape: Shape) -> Accumulation {
    Accumulation::new(shape.operator(), shape.datatype()).expect("a header's shape is defined")
}

impl Payloads for NodeMemory {
    fn park(&mut self, at: Place, incoming: &[u8]) {
        let sender = self.sender;
        let memory = self.memory(at);
        assert!(incoming.len() <= memory.payload_max_bytes(), "segments fit");
        let (index, child) = memory.parking_place(at);
        assert_eq!(child, sender, "a child parks in its own place");
        let before = memory.parked_bytes[index].replace(incoming.len());
        assert!(memory.is_shared() || before.is_none(), "a child parks one contribution per slot");
        let first = index * memory.payload_max_bytes();
        memory.parked[first..][..incoming.len()].copy_from_slice(incoming);
    }

    fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        let sender = self.sender;
        let memory = self.memory(at);
        let slot = memory.slots[usize::from(at.slot)];
        let is_free = !matches!(slot, Slot::Reducing { .. });
        assert!(memory.is_shared() || is_free, "one begin a segment");
        let (target, source, child) = memory.both(at, shape, incoming, sender);
        assert_eq!(child, ChildIndex(0), "the first child begins");
        accumulation(shape).begin(target, source);
        memory.slots[usize::from(at.slot)] = Slot::Reducing { shape, counted: 1 };
    }

    fn fold(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        let sender = self.sender;
        let memory = self.memory(at);
        let slot = memory.slots[usize::from(at.slot)];
        let Slot::Reducing { shape: begun, counted } = slot else {
            panic!("fold follows begin, not {slot:?}");
        };
        assert_eq!(begun, shape, "one shape per segment");
        let (target, source, child) = memory.both(at, shape, incoming, sender);
        assert_eq!(child.0, counted, "children are folded in order");
        accumulation(shape).fold(target, source);
        memory.slots[usize::from(at.slot)] = Slot::Reducing { shape, counted: counted + 1 };
    }

    fn finish(&mut self, at: Place, shape: Shape) {
        let memory = self.memory(at);
        let slot = memory.slots[usize::from(at.slot)];
        let Slot::Reducing { shape: begun, counted } = slot else {
            panic!("finish follows begin, not {slot:?}");
        };
        let is_whole = memory.is_shared() || counted == memory.arena.children;
        assert!(begun == shape && is_whole, "all, once");
        let first = memory.accumulator(at);
        let len_bytes = accumulator_bytes(shape.datatype(), shape.elements() as usize);
        accumulation(shape).finish(&mut memory.accumulators[first..][..len_bytes]);
        memory.slots[usize::from(at.slot)] = Slot::Wire { len_bytes: shape.bytes() };
    }

    fn store(&mut self, at: Place, incoming: &[u8]) {
        let memory = self.memory(at);
        assert!(incoming.len() <= memory.payload_max_bytes(), "segments fit");
        let is_reducing = matches!(memory.slots[usize::from(at.slot)], Slot::Reducing { .. });
        assert!(memory.is_shared() || !is_reducing, "no result before its reduction");
        let first = memory.accumulator(at);
        memory.accumulators[first..][..incoming.len()].copy_from_slice(incoming);
        memory.slots[usize::from(at.slot)] = Slot::Wire { len_bytes: incoming.len() };
    }
}
