//! How the leaders of different hosts meet: through an aggregation tree, or over direct links.
//!
//! Owns the contract between the engine of a communicator, which runs operations, and the two methods,
//! which carry them between hosts ([`InterHost`]); the place in a tree ([`TreeMember`]), and what happens
//! when that tree is lost ([`FailoverTree`]); the host algorithms over links ([`DirectLinks`]); levels of groups whose members
//! exchange datagrams ([`replicated`]); and which of these two carries an operation ([`DirectMethod`]). Must not know the other ranks of
//! a host, how a method is selected, MPI, or how the leaders found each other.

mod departures;
mod direct;
mod direct_method;
mod exact_kernels;
pub mod failover;
mod kernels;
mod operation;
pub mod replicated;
pub mod threads;
mod tree;
pub mod watch;

pub use departures::wait_for_departures;
pub use direct::{
    AddressError, DirectLinks, HostAddress, Identity, Listener, ListenerError, host_addresses,
    listen_within, own_address,
};
pub use direct_method::{DirectMethod, ReplicatedGroups, goes_by_groups};
pub use failover::FailoverTree;
pub use kernels::{Adapter, Kernels, PairNumber, is_float_sum, kernel};
pub use operation::{InterHost, InterHostOperation, needs_target, stream_part_bytes};
pub use tree::{Approach, EnterError, TreeMember};
