//! The program compiled for user space: the same source, over tables in ordinary memory.

#![allow(unsafe_code, reason = "calls C")]

pub mod packets;

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tributary_wire::{Datatype, GroupId, Operator};

use crate::layout::{PLACES, SLOTS_PER_PLACE, Slot};
#[cfg(feature = "interleavings")]
pub use crate::steps::{Step, follow};
use crate::tables::{Directory, Memory, Tables};
use crate::word::Word;

/// What the program says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes up to the process.
    Pass,
    /// It is dropped.
    Drop,
    /// It was rewritten, and is the last of those sent.
    Redirect,
}

/// A packet that the program sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// Through which interface.
    pub interface: u32,
    /// From its Ethernet header on.
    pub bytes: Vec<u8>,
}

/// The program, over tables in ordinary memory. Threads may run it at the same time, as cores do.
pub struct UserSpace {
    world: Arc<World>,
    memory: Arc<Memory>,
}

/// A group that the program serves, as it lies in the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The group.
    pub group: GroupId,
    /// Segments in flight at most.
    pub window: u16,
    /// How many children it has.
    pub children: usize,
    /// Whether it has a parent.
    pub is_below: bool,
    /// The words of its slots.
    pub words: Vec<Word>,
}

/// `struct packet` of `user.c`.
#[repr(C)]
struct Packet {
    bytes: *mut u8,
    len_bytes: u32,
    room_bytes: u32,
    interface: u32,
    is_checksum_known: c_int,
}

/// `struct world` of `user.c`.
#[repr(C)]
struct World {
    places: *mut u8,
    slots: *mut u8,
    counters: *mut u8,
    keys: [AtomicU64; PLACES],
    indices: [AtomicU32; PLACES],
}

// SAFETY: the pointers are to tables that program and process share: both change them as the tables' rules say.
unsafe impl Send for World {}
// SAFETY: as above; the directory is of atomics.
unsafe impl Sync for World {}

/// The key of an entry that is not in use: no group has the last number in the last epoch.
const NO_KEY: u64 = u64::MAX;

type OnSent = extern "C" fn(*mut c_void, u32, *const u8, u32);

unsafe extern "C" {
    fn kernel_path_run(
        world: *const World,
        packet: *mut Packet,
        listener: *mut c_void,
        on_sent: OnSent,
    ) -> c_int;
    fn kernel_path_element_bytes(operator: u32, datatype: u32) -> u32;
    fn kernel_path_is_folded_here(
        operator: u32,
        datatype: u32,
        elements: u32,
        children: u32,
    ) -> c_int;
    fn kernel_path_combined(operator: u32, datatype: u32, left: u64, right: u64) -> u64;
    #[cfg(test)]
    fn kernel_path_layout(which: u32) -> u32;
    fn kernel_path_world_bytes() -> u32;
}

/// The program is about to touch what others change.
#[unsafe(export_name = "step")]
extern "C" fn step_of_program() {
    crate::steps::step();
}

impl UserSpace {
    /// The program, and its tables without a group.
    ///
    /// # Panics
    /// If there is no memory for the tables.
    #[must_use]
    pub fn new() -> (Self, Tables) {
        // SAFETY: the function reads nothing.
        let world_bytes = unsafe { kernel_path_world_bytes() } as usize;
        assert_eq!(world_bytes, size_of::<World>(), "both sides agree on what a world is");
        let memory = Arc::new(Memory::anonymous().expect("there is memory for the tables"));
        let (places, slots, counters) = memory.starts();
        let world = Arc::new(World {
            places,
            slots,
            counters,
            keys: [const { AtomicU64::new(NO_KEY) }; PLACES],
            indices: [const { AtomicU32::new(0) }; PLACES],
        });
        let directory = Entries(Arc::clone(&world));
        let tables = Tables::new(Arc::clone(&memory), Box::new(directory));
        (Self { world, memory }, tables)
    }

    /// All that the program has stored for its first group.
    #[must_use]
    pub fn copy_slots(&self) -> Vec<u8> {
        let bytes = size_of::<Slot>() * SLOTS_PER_PLACE;
        let start = self.memory.slot(0, 0).cast::<u8>();
        // SAFETY: so many slots lie in the mapping, one behind the other.
        unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec()
    }

    /// The groups that the program serves.
    #[must_use]
    pub fn groups_served(&self) -> Vec<Served> {
        // Acquire: pairs with the switch that is set when a place is filled in.
        let is_on = |index: &usize| self.memory.is_on(*index).load(Ordering::Acquire) != 0;
        let served = (0..PLACES).filter(is_on).map(|index| {
            // SAFETY: the place lies in the mapping; while it is on, nothing that is read here is written.
            let place = unsafe { &*self.memory.place(index) };
            let slots = 0..=place.slot_mask as usize;
            Served {
                group: GroupId(place.group),
                window: place.window as u16,
                children: place.children as usize,
                is_below: place.parent.edge.peer_address != [0; 4],
                words: slots
                    .map(|slot| Word(self.memory.word(index, slot).load(Ordering::Acquire)))
                    .collect(),
            }
        });
        served.collect()
    }

    /// Runs the program over a packet that came in through an interface. Returns its verdict and all
    /// that it sent, in order.
    ///
    /// # Panics
    /// If the program says what it never says.
    pub fn run(
        &self,
        interface: u32,
        bytes: &[u8],
        is_checksum_known: bool,
    ) -> (Verdict, Vec<SentPacket>) {
        let mut sent: Vec<SentPacket> = Vec::new();
        let mut memory = bytes.to_vec();
        memory.resize(bytes.len() + 2048, 0);
        let mut packet = Packet {
            bytes: memory.as_mut_ptr(),
            len_bytes: bytes.len() as u32,
            room_bytes: memory.len() as u32,
            interface,
            is_checksum_known: c_int::from(is_checksum_known),
        };
        let listener = (&raw mut sent).cast();
        // SAFETY: world and packet have the layout of their C structures; the tables, the packet's
        // memory and the listener outlive the call.
        let verdict = unsafe {
            kernel_path_run(Arc::as_ptr(&self.world), &raw mut packet, listener, on_sent)
        };
        let verdict = match verdict {
            -1 => Verdict::Pass,
            2 => Verdict::Drop,
            7 => Verdict::Redirect,
            other => panic!("the program says {other}"),
        };
        (verdict, sent)
    }
}

extern "C" fn on_sent(listener: *mut c_void, interface: u32, bytes: *const u8, len_bytes: u32) {
    // SAFETY: `run` has set the listener to its own list, and waits for this.
    let sent = unsafe { &mut *listener.cast::<Vec<SentPacket>>() };
    // SAFETY: the program passes a packet and its length.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, len_bytes as usize) };
    sent.push(SentPacket { interface, bytes: bytes.to_vec() });
}

/// The directory inside a world.
struct Entries(Arc<World>);

impl Entries {
    fn position(&self, key: u64) -> Option<usize> {
        // Relaxed: only this side changes keys.
        self.0.keys.iter().position(|it| it.load(Ordering::Relaxed) == key)
    }
}

impl Directory for Entries {
    fn enter(&mut self, key: u64, place: u32) -> std::io::Result<()> {
        let entry = self.position(NO_KEY).ok_or(std::io::ErrorKind::StorageFull)?;
        self.0.indices[entry].store(place, Ordering::Relaxed);
        // Release: pairs with the program's look at the key, so the index is read after it.
        self.0.keys[entry].store(key, Ordering::Release);
        Ok(())
    }

    fn leave(&mut self, key: u64) -> std::io::Result<()> {
        let entry = self.position(key).ok_or(std::io::ErrorKind::NotFound)?;
        self.0.keys[entry].store(NO_KEY, Ordering::Relaxed);
        Ok(())
    }
}

/// Size of an element that the program gathers; 0 if it leaves such segments to the process.
#[must_use]
pub fn element_bytes(operator: Operator, datatype: Datatype) -> usize {
    let (operator, datatype) = (u32::from(operator.code()), u32::from(datatype.code()));
    // SAFETY: the function takes any numbers.
    unsafe { kernel_path_element_bytes(operator, datatype) as usize }
}

/// Whether the program folds such contributions itself.
#[must_use]
pub fn is_folded_here(
    operator: Operator,
    datatype: Datatype,
    elements: u32,
    children: u32,
) -> bool {
    let (operator, datatype) = (u32::from(operator.code()), u32::from(datatype.code()));
    // SAFETY: the function takes any numbers.
    unsafe { kernel_path_is_folded_here(operator, datatype, elements, children) != 0 }
}

/// The elements in two words of eight bytes, combined.
#[must_use]
pub fn combine(operator: Operator, datatype: Datatype, left: u64, right: u64) -> u64 {
    let (operator, datatype) = (u32::from(operator.code()), u32::from(datatype.code()));
    // SAFETY: the function takes any numbers.
    unsafe { kernel_path_combined(operator, datatype, left, right) }
}

#[cfg(test)]
pub(crate) fn layout(count: usize) -> Vec<usize> {
    // SAFETY: the function takes any number.
    (0..count).map(|which| unsafe { kernel_path_layout(which as u32) as usize }).collect()
}
