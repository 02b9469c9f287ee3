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
//! Two hosts connect when the first operation needs it; the one with the lower number calls the
//! other, before it does anything else for that operation. So a host that waits to be called waits for
//! a host to come to the operation, which it must do anyhow. A caller's first frame is a `Join` with
//! its number and the communicator's secret; every frame of either side carries the secret.
//!
//! Where the manager has frames authenticated, every frame of either side, the `Join` included, also
//! carries a code. Each link has a key of its own, and the codes tell the order of the frames: a frame
//! that was altered, repeated or taken from elsewhere is refused, and that ends the operation.
//!
//! # Failure
//!
//! Who finds a link ended by a host that didn't say `Leave` tells all it is connected to, and they
//! pass it on, naming the host at fault; who waits long looks at all its links. A host that waits for
//! nothing learns it at its next operation.
//!
//! Who was told ends its links, so an ended link alone blames nobody: what is unread is searched for
//! the reason first, on that link and then on the others. And a host goes only when what it said has
//! arrived, or half a second later. Who is blamed without a word is the host whose link ended: it
//! died, or its word was lost with it, or it was called after it had gone.

mod address;
mod contribution;
mod failure;
mod identity;
mod links;
mod listener;
mod options;
mod peers;
mod running;
mod schedules;
#[cfg(test)]
mod tests;

pub(crate) use address::own_address;
pub(crate) use identity::Identity;
pub(crate) use links::DirectLinks;
pub(crate) use listener::Listener;
