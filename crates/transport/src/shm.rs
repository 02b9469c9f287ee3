//! Links over shared memory, for two processes on one host.
//!
//! Owns the rings, the greeting that sets them up, and the socket for wake-ups.
//!
//! The connecting side makes a sealed memfd with one ring per direction and passes it over a Unix
//! socket ([`connect_shm`]); the accepting side checks and maps it ([`ShmListener`]). After that
//! frames go through the rings ([`ShmLink`]). The socket carries only doorbells: one byte wakes a
//! side that has said in shared memory that it sleeps. The kernel closes the socket when a process
//! dies, so a peer's death is noticed there too. (A process that forks without exec keeps it open
//! until the child ends as well.)
//!
//! # What a frame costs
//!
//! Cache lines that move from one core to another for one frame while both sides poll:
//!
//! | line | moves | adds to latency |
//! |---|---|---|
//! | header, which the consumer polls | to the producer, and back to the consumer | both |
//! | payload, per 64 bytes | the same; the producer's requests overlap | one, after the header |
//! | next header, whose ready word is zeroed | to the producer, which then keeps it | none: overlaps |
//! | index of what was consumed | to the producer, once per ring's worth of frames | none |
//! | the words that say who sleeps | none while nobody sleeps | none |
//!
//! There is no index of produced bytes: the ready word in the header line takes its place.
//! A store-load fence per sent frame, and one per quarter ring of received frames, prevent lost
//! wake-ups.

mod connect;
mod hello;
mod link;
mod listener;
mod memory;
mod options;
mod ring;

pub use connect::connect_shm;
pub use link::ShmLink;
pub use listener::{HALF_OPEN_MAX, ShmListener};
pub use options::{RING_BYTES_MAX, ShmOptions};
