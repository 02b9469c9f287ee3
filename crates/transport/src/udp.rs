//! Frames as UDP datagrams, one each: for the data of an edge whose link is TCP.
//!
//! Not a [`Link`](crate::Link): a datagram may be lost, come twice or late, from anybody, and
//! whoever uses them copes with that. Owned here are the socket, batching, and what the kernel
//! offers to make many datagrams cost little: several per system call (`sendmmsg`, `recvmmsg`), and
//! several of one length to one receiver as a train that crosses the kernel once (UDP segmentation
//! and receive offload), where the kernel has that.

mod inbox;
mod queue;
mod socket;
#[allow(unsafe_code, reason = "system calls that rustix does not wrap")]
mod sys;

pub use socket::{Datagram, DatagramSocket, DatagramStats, MULTICAST_HOPS};

/// Longest payload that a datagram carries between a frame's header and its authentication code:
/// what IPv4 leaves of 65,535 bytes. Beyond [`WHOLE_PAYLOAD_BYTES`] the network cuts it into fragments.
pub const DATAGRAM_PAYLOAD_BYTES_MAX: u32 = 65_535 - 20 - 8 - 64 - 16;

/// Longest payload that crosses an Ethernet with the ordinary MTU of 1,500 bytes in one piece,
/// IPv6's longer header included. (With a code behind it, IPv4's.)
pub const WHOLE_PAYLOAD_BYTES: u32 = 1500 - 40 - 8 - 64;
