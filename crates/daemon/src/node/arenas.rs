//! Payload memory. Each group has an arena, allocated when the group is installed. Each tree has an
//! arena for streams, allocated with the first group that may stream there and never released.
//!
//! Owns all memory of contributions and results on this aggregator, and applies the reduction kernels to
//! it when the protocol machine asks. Knows nothing of links or of the order of contributions.

use memmap2::MmapMut;
use tributary_protocol::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use tributary_reduce::{Accumulation, accumulator_bytes, accumulator_bytes_max};
use tributary_wire::frame::Shape;
use tributary_wire::{Datatype, Operator};

/// Payloads start at multiples of this: a cache line, and the widest vector register.
const ALIGN_BYTES: usize = 64;

const OPERATORS: usize = Operator::ALL.len() + 1;
const DATATYPES: usize = Datatype::ALL.len() + 1;

/// All payload memory of this aggregator.
pub(super) struct Arenas {
    /// Indexed by group, whose numbers the manager keeps small and dense.
    groups: Vec<Option<Memory>>,
    /// Indexed by tree; there are few.
    streams: Vec<Option<Memory>>,
    /// Indexed by the codes of operator and datatype.
    kernels: Box<[[Option<Accumulation>; DATATYPES]; OPERATORS]>,
    bytes_used: u64,
    /// The part of `bytes_used` that belongs to streams.
    stream_bytes: u64,
    bytes_max: u64,
}

/// Why an arena was not allocated.
#[derive(Debug, thiserror::Error)]
pub(super) enum AllocateError {
    /// The aggregator's own limit.
    #[error("needs {needed_bytes} bytes of payload memory, {free_bytes} of {max_bytes} are free")]
    Exhausted { needed_bytes: u64, free_bytes: u64, max_bytes: u64 },
    /// The operating system.
    #[error("mapping {needed_bytes} bytes of payload memory failed: {source}")]
    Map { needed_bytes: u64, source: std::io::Error },
}

/// One arena's memory: all accumulators, then all parking places.
struct Memory {
    /// Mapped rather than taken from the heap: pages that are never used cost nothing, and all of
    /// them go back to the system with the group.
    map: MmapMut,
    layout: Layout,
    children: usize,
}

impl Arenas {
    /// No memory yet, and never more than `bytes_max` of it.
    pub(super) fn new(bytes_max: u64) -> Self {
        let mut kernels = Box::new([const { [const { None }; DATATYPES] }; OPERATORS]);
        for operator in Operator::ALL {
            for datatype in Datatype::ALL {
                kernels[usize::from(operator.code())][usize::from(datatype.code())] =
                    Accumulation::new(operator, datatype);
            }
        }
        let (groups, streams) = (Vec::new(), Vec::new());
        Self { groups, streams, kernels, bytes_used: 0, stream_bytes: 0, bytes_max }
    }

    /// Allocates an arena. A tree's arena is allocated once.
    pub(super) fn allocate(&mut self, arena: &Arena) -> Result<(), AllocateError> {
        let (arenas, index) = match arena.id {
            ArenaId::Group(group) => (&mut self.groups, group.0 as usize),
            ArenaId::Stream(tree) => (&mut self.streams, usize::from(tree.0)),
        };
        if arenas.len() <= index {
            arenas.resize_with(index + 1, || None);
        }
        let is_stream = matches!(arena.id, ArenaId::Stream(_));
        if is_stream && arenas[index].is_some() {
            return Ok(());
        }
        assert!(arenas[index].is_none(), "the machine reuses an arena only after its release");
        let memory = Memory::new(arena, self.bytes_max - self.bytes_used, self.bytes_max)?;
        let bytes = memory.map.len() as u64;
        self.bytes_used += bytes;
        self.stream_bytes += if is_stream { bytes } else { 0 };
        arenas[index] = Some(memory);
        Ok(())
    }

    /// Releases a group's arena, if it was allocated. A tree's arena stays.
    pub(super) fn release(&mut self, id: ArenaId) {
        let ArenaId::Group(group) = id else { return };
        if let Some(memory) = self.groups.get_mut(group.0 as usize).and_then(Option::take) {
            self.bytes_used -= memory.map.len() as u64;
        }
    }

    /// Bytes allocated for groups and streams.
    pub(super) fn bytes_used(&self) -> u64 {
        self.bytes_used
    }

    /// Bytes allocated for streams. Most pages of a tree's arena are never touched.
    pub(super) fn stream_bytes(&self) -> u64 {
        self.stream_bytes
    }

    /// The first `len_bytes` bytes of a payload, to be sent.
    pub(super) fn payload(&self, at: Place, len_bytes: usize) -> &[u8] {
        let memory = self.memory(at.arena);
        &memory.map[memory.offset(at)..][..len_bytes]
    }

    fn memory(&self, id: ArenaId) -> &Memory {
        let memory = match id {
            ArenaId::Group(group) => &self.groups[group.0 as usize],
            ArenaId::Stream(tree) => &self.streams[usize::from(tree.0)],
        };
        memory.as_ref().expect(INSTALLED)
    }

    fn memory_mut(&mut self, id: ArenaId) -> &mut Memory {
        let memory = match id {
            ArenaId::Group(group) => &mut self.groups[group.0 as usize],
            ArenaId::Stream(tree) => &mut self.streams[usize::from(tree.0)],
        };
        memory.as_mut().expect(INSTALLED)
    }

    fn kernel(&self, shape: Shape) -> Option<Accumulation> {
        let operator = usize::from(shape.operator().code());
        self.kernels[operator][usize::from(shape.datatype().code())]
    }
}

const INSTALLED: &str = "the machine names only places of arenas that it has not released";
const IS_REDUCTION: &str = "every shape is a reduction with a kernel, or moves data unchanged";

/// Layout of an arena's memory.
struct Layout {
    parking_offset: usize,
    accumulator_stride: usize,
    parking_stride: usize,
    total_bytes: usize,
}

impl Layout {
    fn new(arena: &Arena) -> Self {
        let payload_bytes = arena.payload_max_bytes as usize;
        let accumulator_stride = accumulator_bytes_max(payload_bytes).next_multiple_of(ALIGN_BYTES);
        let parking_stride = payload_bytes.next_multiple_of(ALIGN_BYTES);
        let (slots, children) = (usize::from(arena.slots), usize::from(arena.children));
        let parking_offset = slots * accumulator_stride;
        let total_bytes = parking_offset + slots * children * parking_stride;
        Self { parking_offset, accumulator_stride, parking_stride, total_bytes }
    }
}

/// Payload memory that an arena needs, in bytes.
pub(super) fn arena_bytes(arena: &Arena) -> u64 {
    Layout::new(arena).total_bytes as u64
}

impl Memory {
    fn new(arena: &Arena, free_bytes: u64, max_bytes: u64) -> Result<Self, AllocateError> {
        let layout = Layout::new(arena);
        let needed_bytes = layout.total_bytes as u64;
        if needed_bytes > free_bytes {
            return Err(AllocateError::Exhausted { needed_bytes, free_bytes, max_bytes });
        }
        let map = MmapMut::map_anon(layout.total_bytes)
            .map_err(|source| AllocateError::Map { needed_bytes, source })?;
        Ok(Self { map, layout, children: usize::from(arena.children) })
    }

    fn offset(&self, at: Place) -> usize {
        let slot = usize::from(at.slot);
        match at.lane {
            Lane::Accumulator => slot * self.layout.accumulator_stride,
            Lane::Parked(child) => {
                let place = slot * self.children + usize::from(child.0);
                self.layout.parking_offset + place * self.layout.parking_stride
            }
        }
    }

    /// The slot's accumulator, `accumulator_bytes` long, and the contribution `source`.
    fn operands<'a>(
        &'a mut self,
        at: Place,
        accumulator_bytes: usize,
        source: Source<'a>,
        source_bytes: usize,
    ) -> (&'a mut [u8], &'a [u8]) {
        let accumulator_at = self.offset(at);
        let parked_at = match source {
            Source::Parked(place) => self.offset(place) - self.layout.parking_offset,
            Source::Frame(_) => 0,
        };
        let (accumulators, parking) = self.map.split_at_mut(self.layout.parking_offset);
        let source = match source {
            Source::Frame(bytes) => bytes,
            Source::Parked(_) => &parking[parked_at..][..source_bytes],
        };
        (&mut accumulators[accumulator_at..][..accumulator_bytes], source)
    }
}

impl Payloads for Arenas {
    fn park(&mut self, at: Place, incoming: &[u8]) {
        let memory = self.memory_mut(at.arena);
        let offset = memory.offset(at);
        memory.map[offset..][..incoming.len()].copy_from_slice(incoming);
    }

    fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        let kernel = self.kernel(shape);
        let memory = self.memory_mut(at.arena);
        match kernel {
            Some(kernel) => {
                let (accumulator, source) =
                    memory.operands(at, widened_bytes(shape), incoming, shape.bytes());
                kernel.begin(accumulator, source);
            }
            // A broadcast moves data unchanged, and a barrier moves none.
            None => {
                let (accumulator, source) =
                    memory.operands(at, shape.bytes(), incoming, shape.bytes());
                accumulator.copy_from_slice(source);
            }
        }
    }

    fn fold(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        let kernel = self.kernel(shape).expect(IS_REDUCTION);
        let (accumulator, source) =
            self.memory_mut(at.arena).operands(at, widened_bytes(shape), incoming, shape.bytes());
        kernel.fold(accumulator, source);
    }

    fn finish(&mut self, at: Place, shape: Shape) {
        let Some(kernel) = self.kernel(shape) else { return };
        let memory = self.memory_mut(at.arena);
        let offset = memory.offset(at);
        kernel.finish(&mut memory.map[offset..][..widened_bytes(shape)]);
    }

    fn store(&mut self, at: Place, incoming: &[u8]) {
        let memory = self.memory_mut(at.arena);
        let offset = memory.offset(at);
        memory.map[offset..][..incoming.len()].copy_from_slice(incoming);
    }
}

fn widened_bytes(shape: Shape) -> usize {
    accumulator_bytes(shape.datatype(), shape.elements() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_wire::{ChildIndex, GroupId, TreeId};

    fn place(slot: u16, lane: Lane) -> Place {
        Place { arena: ArenaId::Group(GroupId(3)), slot, lane }
    }

    fn arenas() -> Arenas {
        let mut arenas = Arenas::new(1 << 20);
        let arena =
            Arena { id: ArenaId::Group(GroupId(3)), slots: 4, children: 3, payload_max_bytes: 100 };
        arenas.allocate(&arena).unwrap();
        arenas
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn contributions_meet_from_frames_and_parking_places() {
        let mut arenas = arenas();
        let shape = Shape::new(Operator::Sum, Datatype::F32, 2).unwrap();
        let parked = place(1, Lane::Parked(ChildIndex(2)));
        let neighbour = place(1, Lane::Parked(ChildIndex(1)));
        arenas.park(parked, &bytes(&[10.0, 20.0]));
        arenas.park(neighbour, &[0xFF; 100]);
        let at = place(1, Lane::Accumulator);
        arenas.begin(at, shape, Source::Frame(&bytes(&[1.0, 2.0])));
        arenas.fold(at, shape, Source::Parked(parked));
        arenas.finish(at, shape);
        assert_eq!(arenas.payload(at, 8), bytes(&[11.0, 22.0]));
        arenas.store(at, &bytes(&[5.0]));
        assert_eq!(arenas.payload(at, 4), bytes(&[5.0]));
    }

    #[test]
    fn short_floats_are_rounded_once() {
        let mut arenas = arenas();
        // bfloat16 has 8 bits of mantissa: 256 + 1 rounds back to 256 each time, but 256 + 1 + 1 is
        // 258 when only the end is rounded.
        let shape = Shape::new(Operator::Sum, Datatype::Bf16, 50).unwrap();
        let of = |value: f32| ((value.to_bits() >> 16) as u16).to_le_bytes().repeat(50);
        let at = place(3, Lane::Accumulator);
        arenas.begin(at, shape, Source::Frame(&of(256.0)));
        arenas.fold(at, shape, Source::Frame(&of(1.0)));
        arenas.fold(at, shape, Source::Frame(&of(1.0)));
        arenas.finish(at, shape);
        assert_eq!(arenas.payload(at, 100), of(258.0));
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let mut arenas = arenas();
        let used = arenas.bytes_used();
        let arena = Arena {
            id: ArenaId::Group(GroupId(0)),
            slots: 64,
            children: 8,
            payload_max_bytes: 65_536,
        };
        let error = arenas.allocate(&arena).unwrap_err();
        assert!(matches!(error, AllocateError::Exhausted { max_bytes: 1_048_576, .. }), "{error}");
        arenas.release(ArenaId::Group(GroupId(0)));
        assert_eq!(arenas.bytes_used(), used);
        arenas.release(ArenaId::Group(GroupId(3)));
        assert_eq!(arenas.bytes_used(), 0);
    }
    #[test]
    fn a_trees_memory_is_allocated_once_and_apart_from_groups() {
        let mut arenas = arenas();
        let own = arenas.bytes_used();
        let id = ArenaId::Stream(TreeId(3));
        let arena = Arena { id, slots: 8, children: 4, payload_max_bytes: 1024 };
        arenas.allocate(&arena).unwrap();
        let both = arenas.bytes_used();
        assert_eq!(arenas.stream_bytes(), both - own);
        arenas.allocate(&arena).unwrap();
        assert_eq!(arenas.bytes_used(), both, "every further group shares it");
        let at = Place { arena: id, slot: 0, lane: Lane::Accumulator };
        arenas.store(place(0, Lane::Accumulator), &[1; 8]);
        arenas.store(at, &[2; 8]);
        assert_eq!(arenas.payload(place(0, Lane::Accumulator), 8), [1; 8]);
        assert_eq!(arenas.payload(at, 8), [2; 8]);
        arenas.release(id);
        assert_eq!(arenas.bytes_used(), both, "it stays");
    }
}
