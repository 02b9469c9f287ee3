//! The aggregation protocol as sans-I/O state machines. The daemons, the host library, the
//! simulator and the swarm all drive the same machines.
//!
//! This crate decides what happens to a frame. It never does I/O, reads a clock, draws randomness,
//! logs or touches payload: callers pass in time and seeds, and payload stays where the driver
//! keeps it (see [`payloads`]). `handle_*` takes input, `poll_*` gives output. The crate is
//! `no_std`, so the compiler rejects I/O and clocks.
//!
//! - [`node`]: an aggregation node. Start here.
//! - [`endpoint`]: a member of a group.
//! - [`failover`]: how members finish an operation whose tree is lost.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod carrier;
pub mod endpoint;
pub mod node;
pub mod payloads;

mod liveness;
mod multicast;
mod recovery;
mod stream;
mod time;

pub use carrier::Carrier;
pub use recovery::{Reachability, RecoveryStats};
pub use time::Time;
pub use tributary_failover as failover;
#[cfg(feature = "planted-bugs")]
pub use tributary_failover::planted;
pub use tributary_wire::StreamTerms;
