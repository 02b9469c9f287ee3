//! The program compiled for user space: the same source, over tables in ordinary memory.

#![allow(unsafe_code, reason = "calls C")]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use tributary_wire::{Datatype, Operator};

use crate::layout::PLACES;
use crate::tables::{Directory, Memory, Tables};

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

/// The program, over tables in ordinary memory.
pub struct UserSpace {
    world: Arc<SharedWorld>,
    /// The world's tables.
    _memory: Arc<Memory>,
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
    workspace: [u64; WORKSPACE_WORDS],
    places_used: u32,
    keys: [u64; PLACES],
    indices: [u32; PLACES],
    listener: *mut c_void,
    on_sent: Option<extern "C" fn(*mut c_void, u32, *const u8, u32)>,
}

/// `struct workspace` in words of eight bytes: two heads of 112 bytes, a payload, four numbers.
const WORKSPACE_WORDS: usize = (112 + 112 + 256 + 16) / 8;

unsafe extern "C" {
    fn kernel_path_run(world: *mut World, packet: *mut Packet) -> c_int;
    fn kernel_path_element_bytes(operator: u32, datatype: u32) -> u32;
    fn kernel_path_combined(operator: u32, datatype: u32, left: u64, right: u64) -> u64;
    #[cfg(test)]
    fn kernel_path_layout(which: u32) -> u32;
    fn kernel_path_world_bytes() -> u32;
}

/// A world, which the program and the directory of its tables change in turn.
struct SharedWorld(UnsafeCell<World>);

// SAFETY: a test uses the program and its tables from one thread at a time.
unsafe impl Send for SharedWorld {}
// SAFETY: as above.
unsafe impl Sync for SharedWorld {}

impl UserSpace {
    /// The program, and its tables without a group. One thread may use them.
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
        let world = Arc::new(SharedWorld(UnsafeCell::new(World {
            places,
            slots,
            counters,
            workspace: [0; WORKSPACE_WORDS],
            places_used: 0,
            keys: [u64::MAX; PLACES],
            indices: [0; PLACES],
            listener: std::ptr::null_mut(),
            on_sent: None,
        })));
        let directory = Entries(Arc::clone(&world));
        let tables = Tables::new(Arc::clone(&memory), Box::new(directory));
        (Self { world, _memory: memory }, tables)
    }

    /// Runs the program over a packet that came in through an interface. Returns its verdict and all
    /// that it sent, in order.
    ///
    /// # Panics
    /// If the program says what it never says.
    pub fn run(
        &mut self,
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
        // SAFETY: nothing else refers to the world now.
        let world = unsafe { &mut *self.world.0.get() };
        world.listener = (&raw mut sent).cast();
        world.on_sent = Some(on_sent);
        // SAFETY: world and packet have the layout of their C structures; the tables, the packet's
        // memory and the listener outlive the call.
        let verdict = unsafe { kernel_path_run(world, &raw mut packet) };
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
struct Entries(Arc<SharedWorld>);

impl Directory for Entries {
    fn enter(&mut self, key: u64, place: u32) -> std::io::Result<()> {
        // SAFETY: nothing else refers to the world now.
        let world = unsafe { &mut *self.0.0.get() };
        let index = world.places_used as usize;
        world.keys[index] = key;
        world.indices[index] = place;
        world.places_used += 1;
        Ok(())
    }

    fn leave(&mut self, key: u64) -> std::io::Result<()> {
        // SAFETY: as in `enter`.
        let world = unsafe { &mut *self.0.0.get() };
        let used = world.places_used as usize;
        if let Some(index) = world.keys[..used].iter().position(|it| *it == key) {
            world.keys.swap(index, used - 1);
            world.indices.swap(index, used - 1);
            world.places_used -= 1;
        }
        Ok(())
    }
}

/// Size of an element that the program can combine; 0 if it leaves it to the process.
#[must_use]
pub fn element_bytes(operator: Operator, datatype: Datatype) -> usize {
    let (operator, datatype) = (u32::from(operator.code()), u32::from(datatype.code()));
    // SAFETY: the function takes any numbers.
    unsafe { kernel_path_element_bytes(operator, datatype) as usize }
}

/// The elements in two words of eight bytes, combined.
#[must_use]
pub fn combined(operator: Operator, datatype: Datatype, left: u64, right: u64) -> u64 {
    let (operator, datatype) = (u32::from(operator.code()), u32::from(datatype.code()));
    // SAFETY: the function takes any numbers.
    unsafe { kernel_path_combined(operator, datatype, left, right) }
}

#[cfg(test)]
pub(crate) fn layout(count: usize) -> Vec<usize> {
    // SAFETY: the function takes any number.
    (0..count).map(|which| unsafe { kernel_path_layout(which as u32) as usize }).collect()
}
