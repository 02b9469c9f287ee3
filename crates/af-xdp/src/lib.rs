//! AF_XDP sockets beside UDP sockets: datagrams to chosen ports come to this process before the host's network
//! stack sees them, and answers leave without it.
//!
//! An eBPF program at the interface (`ebpf/steer.c`) steers the datagrams of the ports in its table to the socket of
//! the queue that they arrived at. One process has an interface at a time, from its first [`Port`] there until it ends; all
//! its ports share the interface's sockets, whichever thread polls. Everything else that arrives goes to the network stack as ever.
//!
//! A poll that finds nothing is a look at shared memory, no system call. Sending is one system call for all datagrams
//! that are sent together. `docs/decisions/0043-af-xdp.md` counts what that saves.
//!
//! Owns the program, the sockets, their memory, and the headers of Ethernet, IPv4 and UDP. Must not know frames.

mod doorbell;
mod error;
mod headers;
#[allow(unsafe_code, reason = "packets lie in memory that the kernel shares")]
mod interface;
mod port;
#[allow(unsafe_code, reason = "packets lie in memory that the kernel shares")]
mod queue;
mod steering;

pub use error::OpenError;
pub use port::{PAYLOAD_BYTES_MAX, Port, Taken};

/// Whether the program was compiled with this library: that needs a clang.
pub const IS_BUILT: bool = cfg!(program_built);

/// Where the program sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Behind the driver, at any interface, which is left as it is. Packets are copied.
    Generic,
    /// In the driver, if it can. Some drivers restart the interface for it, and then carry no long frames or
    /// trains of packets. Packets are not copied where the driver can do that, too.
    Native,
}
