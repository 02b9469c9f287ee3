//! Frames as UDP datagrams, one frame each, for the data of an edge whose link is TCP.
//!
//! Not a [`Link`](crate::Link): a datagram may be lost, duplicated or late, and anybody can send
//! one. The users of this module handle that. It owns the socket and two ways to make many
//! datagrams cheap: several per system call (`sendmmsg`, `recvmmsg`), and, where the kernel
//! supports it, several of one length to one receiver as a *train* that crosses the kernel once
//! (UDP segmentation and receive offload). It can be given a port of AF_XDP or a ring: then frames of one
//! packet come past the network stack.

mod bypass;
mod filter;
mod inbox;
mod queue;
mod socket;
#[allow(unsafe_code, reason = "system calls that rustix does not wrap")]
mod sys;
mod unqueued;

pub use tributary_af_xdp::{Admission, Delivery, InvalidAddress, OpenError, Port, ServiceAddress};

pub use filter::FILTERED_CAPABILITIES_MAX;
pub use socket::{
    COPIES_MAX, Datagram, DatagramSocket, DatagramStats, MULTICAST_HOPS, MulticastReceivers,
};
pub use unqueued::Unqueued;

/// Longest payload of a datagram: 65,535 bytes less the headers of IPv4, UDP and frame, and an
/// authentication code. Beyond [`WHOLE_PAYLOAD_BYTES`] the network fragments it.
pub const DATAGRAM_PAYLOAD_BYTES_MAX: u32 = 65_535 - 20 - 8 - 64 - 16;

/// Longest payload that crosses an Ethernet with the usual MTU of 1,500 bytes without
/// fragmentation. With an authentication code, this holds for IPv4 only, whose header is shorter
/// than IPv6's.
pub const WHOLE_PAYLOAD_BYTES: u32 = 1500 - 40 - 8 - 64;
