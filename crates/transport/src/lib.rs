//! Point-to-point links that carry wire frames: a 64-byte header, then its payload.
//!
//! Owns how frames move between two processes: shared-memory rings on one host ([`shm`]), TCP
//! between hosts ([`tcp`]), a wrapper that injects faults (`fault`, behind the feature of that
//! name), frames as datagrams ([`udp`]), and how one thread sleeps until a link has something to do
//! ([`wait()`]). Knows nothing of groups, trees or what a frame means beyond its length. Start at
//! [`Link`]. The crate also holds what both ends of a connection must agree on: the name of a
//! machine ([`machine`]), what the kernel says of its network adapters ([`adapter`]), the secret of the control connections ([`token`]) and their encryption
//! ([`tls`]).
//!
//! Invariants:
//! - Frames of one direction arrive in order, whole and once, or the link fails. A link that has
//!   failed stays failed.
//! - Nothing a peer does panics this side, blocks it, or makes it hold more memory than its options
//!   allow. What a peer wrote is copied, then checked, before it is used.
//! - Sending and receiving allocate nothing, take no lock and format no text.
//! - Nothing here reads a clock except the functions that take a timeout.

#[allow(unsafe_code, reason = "a request to a network driver, for which rustix has no function")]
pub mod adapter;
mod authentication;
mod error;
#[cfg(feature = "fault")]
pub mod fault;
#[allow(unsafe_code, reason = "a handler for fork, and the calls that are allowed there")]
mod link;
pub mod machine;
#[allow(unsafe_code, reason = "socket options that rustix does not wrap")]
mod option;
pub mod shm;
mod socket;
pub mod tcp;
pub mod tls;
pub mod token;
pub mod udp;
mod wait;

pub use authentication::{AuthenticationCode, AuthenticationKey};
pub use error::{
    AcceptError, ConnectError, HandshakeError, ListenError, OptionsError, OsError, ReceiveError,
    SendError,
};
pub use link::{Armed, Frame, Inject, Link, Listener, Sent};
pub use shm::{ShmLink, ShmListener, ShmOptions, connect_shm};
pub use socket::{HostProbes, timespec};
pub use tcp::{TcpAcceptor, TcpLink, TcpOptions, connect_tcp, connect_tcp_start};
pub use udp::{Datagram, DatagramSocket, Unqueued};
pub use wait::{Wake, WakeSources, wait, wait_with_datagrams};
