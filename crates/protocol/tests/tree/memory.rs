//! A node driver's payload memory that checks every call against the contract of [`Payloads`].

use std::collections::BTreeMap;

use tributary_protocol::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use tributary_wire::ChildIndex;
use tributary_wire::frame::Shape;

use crate::arithmetic::{combine, narrow, widen};

/// All arenas of one node.
#[derive(Default)]
pub(crate) struct Memory {
    arenas: BTreeMap<ArenaId, Held>,
    /// The child whose frame is being handled: [`Source::Frame`] doesn't say.
    pub(crate) sender: Option<ChildIndex>,
    /// Whether frames may be sent twice, so that an answer to a repeat can be overtaken by the
    /// next use of its slot.
    pub(crate) allows_stale_reads: bool,
}

struct Held {
    arena: Arena,
    slots: Vec<Slot>,
}

#[derive(Clone, Default)]
struct Slot {
    state: State,
    bytes: Vec<u8>,
    parked: Vec<Option<Vec<u8>>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Unused,
    Reducing {
        shape: Shape,
        counted: u16,
    },
    Wire,
}

impl Memory {
    pub(crate) fn add(&mut self, arena: Arena) {
        assert!(arena.slots.is_power_of_two());
        let slot = Slot { parked: vec![None; usize::from(arena.children)], ..Slot::default() };
        let slots = vec![slot; usize::from(arena.slots)];
        let before = self.arenas.insert(arena.id, Held { arena, slots });
        assert!(before.is_none(), "an arena's name is used again only after its release");
    }

    /// A tree's arena, which is there once and stays.
    pub(crate) fn add_shared(&mut self, arena: Arena) {
        assert!(matches!(arena.id, ArenaId::Stream(_)));
        match self.arenas.get(&arena.id) {
            Some(held) => assert_eq!(held.arena, arena, "one arena per tree"),
            None => self.add(arena),
        }
    }

    pub(crate) fn release(&mut self, id: ArenaId) {
        assert!(self.arenas.remove(&id).is_some(), "an arena is released once");
    }

    /// Groups' arenas.
    pub(crate) fn arenas(&self) -> usize {
        self.arenas.keys().filter(|id| matches!(id, ArenaId::Group(_))).count()
    }

    /// The bytes a frame carries.
    pub(crate) fn read(&self, at: Place, length: usize) -> Vec<u8> {
        assert_eq!(at.lane, Lane::Accumulator, "only results of a reduction travel");
        let held = &self.arenas[&at.arena];
        let slot = &held.slots[usize::from(at.slot)];
        if self.allows_stale_reads && (slot.state != State::Wire || slot.bytes.len() != length) {
            return vec![0xEE; length];
        }
        assert_eq!(slot.state, State::Wire, "no frame carries an unfinished reduction");
        assert_eq!(slot.bytes.len(), length);
        slot.bytes.clone()
    }

    fn slot(&mut self, at: Place) -> (&mut Slot, Arena) {
        let held = self.arenas.get_mut(&at.arena).expect("places lie in living arenas");
        if let Lane::Parked(child) = at.lane {
            assert!(child.0 < held.arena.children);
        }
        (&mut held.slots[usize::from(at.slot)], held.arena)
    }

    /// The contribution's bytes and child, taken from where they were parked.
    fn take(&mut self, source: Source<'_>, shape: Shape) -> (Vec<u8>, ChildIndex) {
        let (bytes, child) = match source {
            Source::Frame(bytes) => (bytes.to_vec(), self.sender.expect("frames have senders")),
            Source::Parked(place) => {
                let Lane::Parked(child) = place.lane else { panic!("parked in an accumulator") };
                let (slot, _) = self.slot(place);
                let bytes = slot.parked[usize::from(child.0)].take();
                (bytes.expect("only what was parked is taken, and once"), child)
            }
        };
        assert_eq!(bytes.len(), shape.bytes());
        (bytes, child)
    }
}

impl Payloads for Memory {
    fn park(&mut self, at: Place, incoming: &[u8]) {
        let Lane::Parked(child) = at.lane else { panic!("parked in an accumulator") };
        assert_eq!(Some(child), self.sender);
        let (slot, arena) = self.slot(at);
        assert!(incoming.len() <= arena.payload_max_bytes as usize);
        let before = slot.parked[usize::from(child.0)].replace(incoming.to_vec());
        let is_shared = matches!(arena.id, ArenaId::Stream(_));
        assert!(is_shared || before.is_none(), "a child parks one contribution per slot");
    }

    fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        assert_eq!(at.lane, Lane::Accumulator);
        let (bytes, child) = self.take(incoming, shape);
        assert_eq!(child, ChildIndex(0), "the first child begins");
        let (slot, arena) = self.slot(at);
        // A group that failed in the middle leaves the tree's slots to the next as they are.
        let is_shared = matches!(arena.id, ArenaId::Stream(_));
        assert!(is_shared || !matches!(slot.state, State::Reducing { .. }), "one begin a segment");
        assert!(shape.bytes() <= arena.payload_max_bytes as usize);
        slot.bytes = widen(shape, &bytes);
        slot.state = State::Reducing { shape, counted: 1 };
    }

    fn fold(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        assert_eq!(at.lane, Lane::Accumulator);
        let (bytes, child) = self.take(incoming, shape);
        let (slot, _) = self.slot(at);
        let State::Reducing { shape: begun, counted } = slot.state else {
            panic!("fold follows begin, not {:?}", slot.state);
        };
        assert_eq!(begun, shape, "one shape per segment");
        assert_eq!(child.0, counted, "children are folded in order");
        combine(shape, &mut slot.bytes, &bytes);
        slot.state = State::Reducing { shape, counted: counted + 1 };
    }

    fn finish(&mut self, at: Place, shape: Shape) {
        assert_eq!(at.lane, Lane::Accumulator);
        let (slot, arena) = self.slot(at);
        let State::Reducing { shape: begun, counted } = slot.state else {
            panic!("finish follows begin, not {:?}", slot.state);
        };
        let is_shared = matches!(arena.id, ArenaId::Stream(_));
        assert!(begun == shape && (is_shared || counted == arena.children), "all, once");
        slot.bytes = narrow(shape, &slot.bytes);
        slot.state = State::Wire;
    }

    fn store(&mut self, at: Place, incoming: &[u8]) {
        assert_eq!(at.lane, Lane::Accumulator);
        let (slot, arena) = self.slot(at);
        assert!(incoming.len() <= arena.payload_max_bytes as usize);
        let is_shared = matches!(arena.id, ArenaId::Stream(_));
        let is_reducing = matches!(slot.state, State::Reducing { .. });
        assert!(is_shared || !is_reducing, "no result before its reduction");
        slot.bytes = incoming.to_vec();
        slot.state = State::Wire;
    }
}
