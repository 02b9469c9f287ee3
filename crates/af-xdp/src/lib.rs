//! Ways past the host's network stack, beside UDP sockets: datagrams to chosen addresses come to this process before the stack sees
//! them. The host's service loads the programs that do that (crate `rings`), so this process needs no privileges.
//!
//! # Rings
//!
//! A [`Delivery`] is for a process that several others send to. A program of the service copies each of its datagrams into a ring in
//! this process's memory. A poll is a look at memory, and a process that sleeps is woken once for all the datagrams that it lacks.
//! `docs/decisions/0061-rings.md` has reasons and figures.
//!
//! # AF_XDP
//!
//! A [`Port`] is for a process with one peer, and its answers go past the stack, too. A program of the service steers the datagrams of
//! its address to the socket of the queue that they arrived at. One process has an interface's sockets at a time, from its first [`Port`]
//! there until it or the service ends; all its ports share them, whichever thread polls. A poll that finds nothing is a look at
//! memory. Sending is one system call for all datagrams that are sent together. By such sockets a process can send any packet, so a
//! service gives them to users alone whom its operator names. `docs/decisions/0043-af-xdp.md` counts what that saves.
//!
//! Owns what this process and the service say to each other, the memory that both sides and the kernel share, and the headers of
//! Ethernet, IP and UDP. Must not know frames.

mod admission;
mod connection;
mod delivery;
mod destination;
mod doorbell;
mod error;
mod headers;
mod interface;
pub mod messages;
mod port;
#[allow(unsafe_code, reason = "packets lie in memory that the kernel shares")]
mod queue;
mod service_address;
#[allow(unsafe_code, reason = "the kernel shares the memory")]
mod shared_ring;
#[allow(unsafe_code, reason = "the kernel is asked for what no library asks")]
mod socket;

pub use admission::Admission;
pub use connection::{Connection, ask_service};
pub use delivery::{Delivery, RING_BYTES, RINGS_MAX, Reader, map_rings};
pub use destination::Destination;
pub use error::OpenError;
pub use interface::find as find_interface;
pub use port::{PAYLOAD_BYTES_MAX, Port, Taken};
pub use queue::{BUFFER_BYTES, QueueSize, SENT_MAX};
pub use service_address::{InvalidAddress, ServiceAddress};
pub use socket::{Peer, network_of, peer_of};
