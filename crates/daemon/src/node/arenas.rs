//! Payload memory: one arena per group, allocated when the group is installed.
//!
//! Owns every byte a contribution or result occupies on this node, and applies the reduction
//! kernels to it at the protocol machine's word. Knows nothing of children's turns or of links.

use memmap2::MmapMut;
use tributary_protocol::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use tributary_reduce::{Accumulation, accumulator_bytes, accumulator_bytes_max};
use tributary_wire::frame::Shape;
use tributary_wire::{Datatype, Operator};

/// Payloads start at multiples of this: a cache line, and the widest vector register.
const ALIGN_BYTES: usize = 64;

const OPERATORS: usize = Operator::ALL.len() + 1;
const DATATYPES: usize = Datatype::ALL.len() + 1;

/// Every group's payload memory on this node.
pub(super) struct Arenas {
    /// Indexed by arena id, which the machine keeps small and dense.
    arenas: Vec<Option<Memory>>,
    /// Indexed by the codes of operator and datatype.
    kernels: Box<[[Option<Accumulation>; DATATYPES]; OPERATORS]>,
    bytes_used: u64,
    bytes_max: u64,
}

/// Why a group got no memory.
#[derive(Debug, thiserror::Error)]
pub(super) enum AllocateError {
    /// The node's own limit.
    #[error("needs {needed_bytes} bytes of payload memory, {free_bytes} of {max_bytes} are free")]
    Exhausted { needed_bytes: u64, free_bytes: u64, max_bytes: u64 },
    /// The operating system.
    #[error("mapping {needed_bytes} bytes of payload memory failed: {source}")]
    Map { needed_bytes: u64, source: std::io::Error },
}

/// One group's memory: all accumulators, then all parking places.
struct Memory {
    /// Mapped rather than taken from the heap: pages that are never used cost nothing, and all of
    /// them go back to the system with the group.
    map: MmapMut,
    parking_offset: usize,
    accumulator_stride: usize,
    parking_stride: usize,
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
        Self { arenas: Vec::new(), kernels, bytes_used: 0, bytes_max }
    }

    /// Sets a group's memory aside.
    pub(super) fn allocate(&mut self, arena: &Arena) -> Result<(), AllocateError> {
        let index = arena.id.0 as usize;
        if self.arenas.len() <= index {
            self.arenas.resize_with(index + 1, || None);
        }
        assert!(self.arenas[index].is_none(), "the machine reuses an arena only after its release");
        let memory = Memory::new(arena, self.bytes_max - self.bytes_used, self.bytes_max)?;
        self.bytes_used += memory.map.len() as u64;
        self.arenas[index] = Some(memory);
        Ok(())
    }

    /// Gives a group's memory back. Does nothing if it never got any.
    pub(super) fn release(&mut self, id: ArenaId) {
        if let Some(memory) = self.arenas.get_mut(id.0 as usize).and_then(Option::take) {
            self.bytes_used -= memory.map.len() as u64;
        }
    }

    /// Bytes that groups hold now.
    pub(super) fn bytes_used(&self) -> u64 {
        self.bytes_used
    }

    /// The first `len_bytes` bytes of a payload, to be sent.
    pub(super) fn payload(&self, at: Place, len_bytes: usize) -> &[u8] {
        let memory = self.arenas[at.arena.0 as usize].as_ref().expect(INSTALLED);
        &memory.map[memory.offset(at)..][..len_bytes]
    }

    fn memory(&mut self, at: Place) -> &mut Memory {
        self.arenas[at.arena.0 as usize].as_mut().expect(INSTALLED)
    }

    fn kernel(&self, shape: Shape) -> Option<Accumulation> {
        let operator = usize::from(shape.operator().code());
        self.kernels[operator][usize::from(shape.datatype().code())]
    }
}

const INSTALLED: &str = "the machine names only places of arenas that it has not released";
const IS_REDUCTION: &str =
    "a shape that exists is a reduction with a kernel, or moves data as it is";

impl Memory {
    fn new(arena: &Arena, free_bytes: u64, max_bytes: u64) -> Result<Self, AllocateError> {
        let payload_bytes = arena.payload_max_bytes as usize;
        let accumulator_stride = accumulator_bytes_max(payload_bytes).next_multiple_of(ALIGN_BYTES);
        let parking_stride = payload_bytes.next_multiple_of(ALIGN_BYTES);
        let (slots, children) = (usize::from(arena.slots), usize::from(arena.children));
        let parking_offset = slots * accumulator_stride;
        let total_bytes = parking_offset + slots * children * parking_stride;
        let needed_bytes = total_bytes as u64;
        if needed_bytes > free_bytes {
            return Err(AllocateError::Exhausted { needed_bytes, free_bytes, max_bytes });
        }
        let map = MmapMut::map_anon(total_bytes)
            .map_err(|source| AllocateError::Map { needed_bytes, source })?;
        Ok(Self { map, parking_offset, accumulator_stride, parking_stride, children })
    }

    fn offset(&self, at: Place) -> usize {
        let slot = usize::from(at.slot);
        match at.lane {
            Lane::Accumulator => slot * self.accumulator_stride,
            Lane::Parked(child) => {
                let place = slot * self.children + usize::from(child.0);
                self.parking_offset + place * self.parking_stride
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
            Source::Parked(place) => self.offset(place) - self.parking_offset,
            Source::Frame(_) => 0,
        };
        let (accumulators, parking) = self.map.split_at_mut(self.parking_offset);
        let source = match source {
            Source::Frame(bytes) => bytes,
            Source::Parked(_) => &parking[parked_at..][..source_bytes],
        };
        (&mut accumulators[accumulator_at..][..accumulator_bytes], source)
    }
}

impl Payloads for Arenas {
    fn park(&mut self, at: Place, incoming: &[u8]) {
        let memory = self.memory(at);
        let offset = memory.offset(at);
        memory.map[offset..][..incoming.len()].copy_from_slice(incoming);
    }

    fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>) {
        let kernel = self.kernel(shape);
        let memory = self.memory(at);
        match kernel {
            Some(kernel) => {
                let (accumulator, source) =
                    memory.operands(at, widened_bytes(shape), incoming, shape.bytes());
                kernel.begin(accumulator, source);
            }
            // A broadcast moves bytes as they are, and a barrier moves none.
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
            self.memory(at).operands(at, widened_bytes(shape), incoming, shape.bytes());
        kernel.fold(accumulator, source);
    }

    fn finish(&mut self, at: Place, shape: Shape) {
        let Some(kernel) = self.kernel(shape) else { return };
        let memory = self.memory(at);
        let offset = memory.offset(at);
        kernel.finish(&mut memory.map[offset..][..widened_bytes(shape)]);
    }

    fn store(&mut self, at: Place, incoming: &[u8]) {
        let memory = self.memory(at);
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
    use tributary_wire::ChildIndex;

    fn place(slot: u16, lane: Lane) -> Place {
        Place { arena: ArenaId(3), slot, lane }
    }

    fn arenas() -> Arenas {
        let mut arenas = Arenas::new(1 << 20);
        let arena = Arena { id: ArenaId(3), slots: 4, children: 3, payload_max_bytes: 100 };
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
        let arena = Arena { id: ArenaId(0), slots: 64, children: 8, payload_max_bytes: 65_536 };
        let error = arenas.allocate(&arena).unwrap_err();
        assert!(matches!(error, AllocateError::Exhausted { max_bytes: 1_048_576, .. }), "{error}");
        arenas.release(ArenaId(0));
        assert_eq!(arenas.bytes_used(), used);
        arenas.release(ArenaId(3));
        assert_eq!(arenas.bytes_used(), 0);
    }
}
