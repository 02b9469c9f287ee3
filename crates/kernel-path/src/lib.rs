//! The aggregation node's path inside the kernel: an eBPF program at the network ports, and the tables
//! that it shares with the aggregator's process.
//!
//! The program (`ebpf/`, C) takes single-packet segments of the groups in its tables: it checks them,
//! gathers them in slots, reduces them in child order and sends the results, before any process is woken.
//! Everything else passes up unchanged. It is an optimisation of `protocol::node`, never a second
//! protocol: same frames, same meaning, same bits. `docs/decisions/0038-kernel-path.md` says who has a slot
//! when, and why nothing is lost between the two.
//!
//! - [`Host`]: whether this machine and process can have it, and what they lack if not.
//! - [`Program`]: loads the program and attaches it to interfaces.
//! - [`Tables`]: groups that the program serves, and sequences that change hands.
//! - [`Handover`]: an aggregator's machine and the program as one.
//! - [`coverage`]: which operations it takes.
//! - `user_space` (a feature, for tests, fuzzers and the swarm): the same source as a function.
//!
//! Owns the program, its tables and their layout, and what changes hands. Must not know links or sockets.

pub mod coverage;

mod handover;
mod host;
mod layout;
#[allow(unsafe_code, reason = "the tables lie in memory that the kernel shares")]
mod memory;
mod program;
mod steps;
#[allow(unsafe_code, reason = "the tables lie in memory that the kernel shares")]
mod tables;
#[cfg(feature = "user-space")]
pub mod user_space;
mod word;

pub use handover::{Arrival, DatagramPath, Handover};
pub use host::{Host, MissingPrerequisite};
pub use layout::{
    CHILDREN_MAX, Counters, FLOAT_SUMS_MAX, PAYLOAD_BYTES_MAX, PLACES, SLOTS_PER_PLACE,
};
pub use program::{IS_BUILT, LoadError, Program};
pub use tables::{
    AdmitError, ChildTerms, Closed, CounterReader, Directory, Folded, GroupTerms, Held, Memory,
    Multicast, ParentTerms, PlaceId, Tables, Taken,
};
pub use word::{Phase, Word};
