//! The aggregation protocol, written once: the daemons, the host library and the simulator all
//! drive these machines.
//!
//! Owns what happens to a frame. Must never do I/O, read a clock, draw randomness, log, or touch
//! payload: time and seeds are passed in, and payload stays where the driver keeps it (see
//! [`payloads`]). `handle_*` takes input, `poll_*` gives output. `no_std`, so that none of this can
//! change by accident.
//!
//! - [`node`]: an aggregation node. Start here.
//! - [`endpoint`]: a member of a group.
//! - [`manager`]: who may form which group on which nodes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod carrier;
pub mod endpoint;
pub mod manager;
pub mod node;
pub mod payloads;

mod multicast;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod recovery;
mod stream;
mod time;

pub use carrier::Carrier;
pub use recovery::{Reach, RecoveryStats};
pub use time::Time;
pub use tributary_wire::StreamTerms;
