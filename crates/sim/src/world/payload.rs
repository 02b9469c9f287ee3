//! Payload models: lengths only, or real bytes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use tributary_protocol::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use tributary_reduce::{Accumulation, accumulator_bytes, accumulator_bytes_max};
use tributary_wire::frame::{PAYLOAD_BYTES_MAX, Shape};

/// A payload model.
///
/// The protocol's machines are the same in both models, because they never read payload.
pub trait Data {
    /// A segment's payload.
    type Piece: Clone + Default;
    /// An aggregation node's memory.
    type Arenas: Payloads + Default;
    /// A member's vector.
    type Vector: Default;

    /// Reserves memory on an aggregator: of a group, or of a tree's streams, which has it once.
    fn allocate(arenas: &mut Self::Arenas, arena: Arena);

    /// The payload at `place`.
    fn read(arenas: &Self::Arenas, place: Place, bytes: usize) -> Self::Piece;

    /// Part of a vector.
    fn part(vector: &Self::Vector, bytes: Range<usize>) -> Self::Piece;

    /// Replaces part of a vector.
    fn fill(vector: &mut Self::Vector, bytes: Range<usize>, piece: &Self::Piece);

    /// A piece as `bytes` bytes.
    fn bytes(piece: &Self::Piece, bytes: usize) -> &[u8];

    /// Whether two pieces are known to be the same bytes.
    fn is_same(one: &Self::Piece, other: &Self::Piece) -> bool;
}

/// No payload, only lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPayload;

static ZEROS: [u8; PAYLOAD_BYTES_MAX] = [0; PAYLOAD_BYTES_MAX];

impl Payloads for NoPayload {
    fn park(&mut self, _: Place, _: &[u8]) {}
    fn begin(&mut self, _: Place, _: Shape, _: Source<'_>) {}
    fn fold(&mut self, _: Place, _: Shape, _: Source<'_>) {}
    fn finish(&mut self, _: Place, _: Shape) {}
    fn store(&mut self, _: Place, _: &[u8]) {}
}

impl Data for NoPayload {
    type Piece = ();
    type Arenas = Self;
    type Vector = ();

    fn allocate(_: &mut Self, _: Arena) {}
    fn read(_: &Self, _: Place, _: usize) {}
    fn part((): &(), _: Range<usize>) {}
    fn fill((): &mut (), _: Range<usize>, (): &()) {}

    fn bytes((): &(), bytes: usize) -> &[u8] {
        &ZEROS[..bytes]
    }

    fn is_same((): &(), (): &()) -> bool {
        true
    }
}

/// Real payload, reduced by the daemons' kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealPayload;

/// The arenas of one aggregator.
#[derive(Debug, Default)]
pub struct Arenas(BTreeMap<ArenaId, ArenaMemory>);

#[derive(Debug)]
struct ArenaMemory {
    payload_max_bytes: usize,
    children: usize,
    accumulators: Vec<u8>,
    parked: Vec<u8>,
}

impl ArenaMemory {
    fn accumulator(&mut self, slot: u16) -> &mut [u8] {
        let each = accumulator_bytes_max(self.payload_max_bytes);
        &mut self.accumulators[usize::from(slot) * each..][..each]
    }

    fn parking_offset(&self, place: Place) -> usize {
        let Lane::Parked(child) = place.lane else { panic!("an accumulator is no parking place") };
        (usize::from(place.slot) * self.children + usize::from(child.0)) * self.payload_max_bytes
    }
}

impl Arenas {
    fn at(&mut self, place: Place) -> &mut ArenaMemory {
        self.0.get_mut(&place.arena).expect("the driver allocates an arena before it is used")
    }

    fn reduce(&mut self, at: Place, shape: Shape, incoming: Source<'_>, is_first: bool) {
        let memory = self.at(at);
        let (operator, datatype) = (shape.operator(), shape.datatype());
        let accumulation = Accumulation::new(operator, datatype)
            .expect("a shape's operator applies to its datatype");
        let bytes = accumulator_bytes(datatype, shape.elements() as usize);
        let parked = match incoming {
            Source::Frame(_) => Vec::new(),
            Source::Parked(from) => {
                memory.parked[memory.parking_offset(from)..][..shape.bytes()].to_vec()
            }
        };
        let incoming = if let Source::Frame(frame) = incoming { frame } else { &parked };
        let accumulator = &mut memory.accumulator(at.slot)[..bytes];
        if is_first {
            accumulation.begin(accumulator, incoming);
        } else {
            accumulation.fold(accumulator, incoming);
        }
    }
}

impl Payloads for Arenas {
    fn park(&mut self, at: Place, incoming: &[u8]) {
        let memory = self.at(at);
        let first = memory.parking_offset(at);
        memory.parked[first..][..incoming.len()].copy_from_slice(incoming);
    }

    fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        self.reduce(at, shape, incoming, true);
    }

    fn fold(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        self.reduce(at, shape, incoming, false);
    }

    fn finish(&mut self, at: Place, shape: Shape) {
        let (operator, datatype) = (shape.operator(), shape.datatype());
        let bytes = accumulator_bytes(datatype, shape.elements() as usize);
        let accumulation = Accumulation::new(operator, datatype)
            .expect("a shape's operator applies to its datatype");
        accumulation.finish(&mut self.at(at).accumulator(at.slot)[..bytes]);
    }

    fn store(&mut self, at: Place, incoming: &[u8]) {
        self.at(at).accumulator(at.slot)[..incoming.len()].copy_from_slice(incoming);
    }
}

impl Data for RealPayload {
    type Piece = Rc<[u8]>;
    type Arenas = Arenas;
    type Vector = Vec<u8>;

    fn allocate(arenas: &mut Arenas, arena: Arena) {
        let payload_max_bytes = arena.payload_max_bytes as usize;
        let (slots, children) = (usize::from(arena.slots), usize::from(arena.children));
        let memory = ArenaMemory {
            payload_max_bytes,
            children,
            accumulators: vec![0; slots * accumulator_bytes_max(payload_max_bytes)],
            parked: vec![0; slots * children * payload_max_bytes],
        };
        match arena.id {
            // A number may come again with another group's terms.
            ArenaId::Group(_) => {
                arenas.0.insert(arena.id, memory);
            }
            // All groups of a tree use it in turn.
            ArenaId::Stream(_) => {
                arenas.0.entry(arena.id).or_insert(memory);
            }
        }
    }

    fn read(arenas: &Arenas, place: Place, bytes: usize) -> Rc<[u8]> {
        let memory = &arenas.0[&place.arena];
        let first = usize::from(place.slot) * accumulator_bytes_max(memory.payload_max_bytes);
        memory.accumulators[first..][..bytes].into()
    }

    fn part(vector: &Vec<u8>, bytes: Range<usize>) -> Rc<[u8]> {
        vector[bytes].into()
    }

    fn fill(vector: &mut Vec<u8>, bytes: Range<usize>, piece: &Rc<[u8]>) {
        vector[bytes].copy_from_slice(piece);
    }

    fn bytes(piece: &Rc<[u8]>, bytes: usize) -> &[u8] {
        assert_eq!(piece.len(), bytes, "a frame's payload is as long as its header says");
        piece
    }

    fn is_same(one: &Rc<[u8]>, other: &Rc<[u8]>) -> bool {
        Rc::ptr_eq(one, other)
    }
}
