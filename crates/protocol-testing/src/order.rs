//! Checks what an aggregator does with its memory against the contract of [`Payloads`].
//!
//! [`Payloads`]: tributary_protocol::payloads::Payloads

use std::collections::BTreeMap;

use tributary_protocol::payloads::{Arena, ArenaId, Lane, Place, Source};
use tributary_wire::ChildIndex;
use tributary_wire::frame::Shape;

/// The order of calls so far, for every slot of an aggregator.
#[derive(Debug)]
pub(crate) struct Order {
    /// The child whose frame is being handled: [`Source::Frame`] doesn't say.
    pub(crate) sender: ChildIndex,
    allows_stale_reads: bool,
    arenas: BTreeMap<ArenaId, Slots>,
}

#[derive(Debug)]
struct Slots {
    arena: Arena,
    accumulators: Vec<Accumulator>,
    /// How many bytes wait in which slot for which child's turn.
    parked: BTreeMap<(u16, ChildIndex), usize>,
}

/// What an accumulator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Accumulator {
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

impl Order {
    pub(crate) fn new(allows_stale_reads: bool) -> Self {
        Self { sender: ChildIndex(0), allows_stale_reads, arenas: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, arena: Arena) {
        let accumulators = vec![Accumulator::Unused; usize::from(arena.slots)];
        self.arenas.insert(arena.id, Slots { arena, accumulators, parked: BTreeMap::new() });
    }

    pub(crate) fn release(&mut self, id: ArenaId) {
        self.arenas.remove(&id);
    }

    /// Whether the slot holds a result of that length: it must, unless stale reads are allowed.
    pub(crate) fn is_readable(&self, at: Place, len_bytes: usize) -> bool {
        let held = self.arenas[&at.arena].accumulators[usize::from(at.slot)];
        let is_there = held == Accumulator::Wire { len_bytes };
        assert!(
            is_there || self.allows_stale_reads,
            "a frame carries a whole result, not {held:?}"
        );
        is_there
    }

    pub(crate) fn park(&mut self, at: Place, len_bytes: usize) {
        let Lane::Parked(child) = at.lane else { panic!("parked in an accumulator") };
        assert_eq!(child, self.sender, "a child parks in its own place");
        let slots = self.slots(at);
        let before = slots.parked.insert((at.slot, child), len_bytes);
        assert!(slots.is_shared() || before.is_none(), "a child parks one contribution per slot");
    }

    pub(crate) fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        assert_eq!(self.take(at, shape, incoming), ChildIndex(0), "the first child begins");
        let slots = self.slots(at);
        let is_reducing = matches!(slots.accumulator(at), Accumulator::Reducing { .. });
        assert!(slots.is_shared() || !is_reducing, "one begin a segment");
        *slots.accumulator(at) = Accumulator::Reducing { shape, counted: 1 };
    }

    pub(crate) fn fold(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        let child = self.take(at, shape, incoming);
        let held = self.slots(at).accumulator(at);
        let Accumulator::Reducing { shape: begun, counted } = *held else {
            panic!("fold follows begin, not {held:?}");
        };
        assert_eq!(begun, shape, "one shape per segment");
        assert_eq!(child.0, counted, "children are folded in order");
        *held = Accumulator::Reducing { shape, counted: counted + 1 };
    }

    pub(crate) fn finish(&mut self, at: Place, shape: Shape) {
        let slots = self.slots(at);
        let held = *slots.accumulator(at);
        let Accumulator::Reducing { shape: begun, counted } = held else {
            panic!("finish follows begin, not {held:?}");
        };
        let is_whole = slots.is_shared() || counted == slots.arena.children;
        assert!(begun == shape && is_whole, "all, once");
        *slots.accumulator(at) = Accumulator::Wire { len_bytes: shape.bytes() };
    }

    pub(crate) fn store(&mut self, at: Place, len_bytes: usize) {
        let slots = self.slots(at);
        let is_reducing = matches!(slots.accumulator(at), Accumulator::Reducing { .. });
        assert!(slots.is_shared() || !is_reducing, "no result before its reduction");
        *slots.accumulator(at) = Accumulator::Wire { len_bytes };
    }

    /// The child whose contribution it is. What was parked is not any more.
    fn take(&mut self, at: Place, shape: Shape, incoming: Source<'_>) -> ChildIndex {
        let (child, len_bytes) = match incoming {
            Source::Frame(bytes) => (self.sender, bytes.len()),
            Source::Parked(Place { lane: Lane::Accumulator, .. }) => panic!("not a parking place"),
            Source::Parked(Place { lane: Lane::Parked(child), slot, .. }) => {
                let len_bytes = self.slots(at).parked.remove(&(slot, child));
                (child, len_bytes.expect("only what was parked is taken, and once"))
            }
        };
        assert_eq!(len_bytes, shape.bytes());
        child
    }

    fn slots(&mut self, at: Place) -> &mut Slots {
        self.arenas.get_mut(&at.arena).expect("places lie in living arenas")
    }
}

impl Slots {
    /// A group that failed in the middle leaves its tree's slots to the next as they are.
    fn is_shared(&self) -> bool {
        matches!(self.arena.id, ArenaId::Stream(_))
    }

    fn accumulator(&mut self, at: Place) -> &mut Accumulator {
        &mut self.accumulators[usize::from(at.slot)]
    }
}
