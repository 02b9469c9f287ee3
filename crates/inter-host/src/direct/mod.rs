//! The hosts of one communicator connected to each other directly: host algorithms over links.
//!
//! Owns the links between leaders, and the run of a [`Schedule`](tributary_algorithms::Schedule)
//! over them. Must not know the tree, the other ranks of a host, how an algorithm is selected, or how the
//! leaders' addresses were exchanged (`setup::direct` does that). Hosts are numbered as in the communicator's placement,
//! and a reduction's operands come in that order or a cyclic one: a function of the algorithm, the
//! number of hosts and the length, never of timing. So equal inputs give equal bits, on all hosts and
//! all runs.
//!
//! # Links
//!
//! Two hosts connect when the first operation needs it. The one with the lower number connects, before
//! it does anything else for that operation, so the other waits for a host to come to the operation,
//! which it must do anyhow. The first frame is a `Join` with the number of the host that connects and the
//! communicator's secret; every frame of either side carries the secret.
//!
//! Where the manager has frames authenticated, every frame of either side, the `Join` included, also
//! carries a code. Each link has a key of its own, and the codes tell the order of the frames: a frame
//! that was altered, repeated or taken from elsewhere is refused, and that ends the operation.
//!
//! A host that waits to be called by one that is late, or gone, rings there: it connects, too. The epoch of a `Join` tells a
//! call, a ring and an alarm apart, and which call the host has made or taken last ([`purpose`]). The ring stays until the
//! call has come. So the end of it, a refusal, or a `Leave` says that nobody will call.
//!
//! # Alarm
//!
//! Links may be there for the case that a tree is lost ([`failover`](crate::failover)). The host that finds
//! this out rings at host 0, if it is not host 0 itself: a `Join` from a higher number that tells which loss it means.
//! Host 0 then speaks to all others, over links that it has or makes.
//!
//! While the tree stands, the links stand by. One that ends then is forgotten, for an outage ends links between living
//! hosts: the host with the lower number calls again when it needs the link, and the other rings at once.
//!
//! # Failure
//!
//! A link that ends without a `Leave` is a failure, unless it stands by. The host that finds it sends an `Abort`, which names
//! the host at fault, to all hosts that it has a link to, and calls or rings at others that may come to it later. They
//! pass it on. A host that waits long
//! checks all its links; a host that waits for nothing learns of the failure at its next operation.
//!
//! Hosts that call different operations carry out different schedules, and may wait for each other in a circle. So a host
//! that has waited for a while says to the one that it waits for what it called; the other compares
//! ([`calls`]). The failure that follows tells what two hosts called.
//!
//! A host that was told ends its links, so an ended link alone does not prove a fault. Unread input is
//! searched for an `Abort` first, on that link and then on the others. A host closes its links only when
//! its `Abort` has arrived, or half a second later. If no `Abort` is found, the host whose link ended is
//! named: it died, or its `Abort` was lost with the link, or it was called after it had left.

mod address;
mod calls;
mod contribution;
mod failure;
mod grace;
mod identity;
mod interfaces;
mod links;
mod listener;
mod options;
mod peer;
mod peers;
mod purpose;
mod running;
mod schedules;
#[cfg(test)]
mod tests;

pub use address::{AddressError, own_address};
pub use identity::Identity;
pub use interfaces::{HostAddress, host_addresses, listen_within};
pub use links::DirectLinks;
pub use listener::{Listener, ListenerError};

// What a replicated group takes of direct links.
pub(crate) use calls::{Call, Calls};
pub(crate) use failure::{Failure, Verdict};
pub(crate) use grace::wait_for_grace;
pub(crate) use peer::misbehaviour_of;
pub(crate) use peers::Peers;
