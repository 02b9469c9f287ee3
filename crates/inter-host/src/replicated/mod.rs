//! Levels of replicated groups: leaders send their contributions to one another as datagrams, and each folds them all.
//!
//! [`DirectMethod`](crate::DirectMethod) gives it the operations that it [`carries`](ReplicatedLevels::carries) and are as short as
//! it is fast for, if the user asks for that. Decision 52 has the reasons and figures.
//!
//! Owns the driver of the machine of crate `replicated`: the datagrams, the places of payload, and when to look at what. One
//! [`ReplicatedLevels`] carries the operations of a communicator over the levels of a plan. At each level a host has a group, and
//! what is the sum of one level is its contribution to the next. Must not know how a method is selected, or how the leaders'
//! addresses were exchanged.
//!
//! # What goes where
//!
//! Contributions go as datagrams: one system call sends the copies for all members of a group, and one receives several. Where
//! multicasts of all members were proven to come to all others, one datagram goes out instead; a host that is asked for too many of
//! them goes back to copies. A host takes both, so hosts need not agree. What a
//! member lacks it asks for over its link to the other, and gets it there. Links are those of [`direct`](crate::direct): made at the
//! first operation, authenticated by the same identity, and the only thing that tells that a host is gone. Silence never does.
//!
//! Datagrams come through the host's network stack, or out of a ring that a program of the kernel fills before it
//! ([`ReplicatedLevels::receive_by_ring`]).
//!
//! # Which datagrams a host accepts
//!
//! A host accepts a datagram that carries the communicator's secret, comes from the address of the host that it names, and, where
//! frames are authenticated, carries the code of the link between the two. It counts any other, which changes nothing. The
//! kernel drops most of those before this process wakes, by the first bytes of the secret.
//!
//! # Waiting
//!
//! The engine polls and sleeps, as for every method ([`InterHost`](crate::InterHost)). A poll asks the socket. It looks at the
//! links only once in a while: when one has woken the process, when something was asked, and after some polls that found nothing.
//!
//! # Order
//!
//! Every group folds from its first member to its last, pair by pair, as the exchange over links does in the same plan
//! ([`Schedule::over_levels`](tributary_algorithms::Schedule::over_levels)). So both give the same bits.
//!
//! # Leaving
//!
//! A host that leaves may be the only one that has what another lacks. It tells the others which operation was its last, and
//! answers them until each has said that it has completed that one. The [thread that watches links](crate::watch) does so, while the
//! program goes on (module `departures`).

mod datagrams;
mod group;
mod levels;
mod memory;
mod multicast;
#[cfg(test)]
mod tests;
mod wire_messages;

pub use datagrams::DatagramsError;
pub use datagrams::Endpoint;
pub use levels::{Members, Reach, ReplicatedLevels, ReplicatedStats};
pub use multicast::LevelSet;

pub use tributary_replicated::NoGroups;
pub use tributary_transport::udp::{OpenError, ServiceAddress};

use tributary_transport::udp::DATAGRAM_PAYLOAD_BYTES_MAX;
use tributary_wire::frame::{REPEATED_BYTES_MAX, REPEATED_HEAD_BYTES};

/// The longest contribution: with the one before it, it fits one datagram.
pub const CONTRIBUTION_BYTES_MAX: usize =
    DATAGRAM_PAYLOAD_BYTES_MAX as usize - REPEATED_HEAD_BYTES - REPEATED_BYTES_MAX;
