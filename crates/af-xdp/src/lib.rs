//! Ways past the host's network stack, beside UDP sockets: datagrams to chosen ports come to this process before the stack
//! sees them.
//!
//! # AF_XDP
//!
//! A [`Port`] is for a process with one peer, and its answers go past the stack, too. An eBPF program at the interface (`ebpf/steer.c`) steers the datagrams of the ports in its table to the socket of
//! the queue that they arrived at. One process has an interface at a time, from its first [`Port`] there until it ends; all
//! its ports share the interface's sockets, whichever thread polls. Everything else that arrives goes to the network stack as ever.
//!
//! A poll that finds nothing is a look at shared memory, no system call. Sending is one system call for all datagrams
//! that are sent together. `docs/decisions/0043-af-xdp.md` counts what that saves.
//!
//! # Rings
//!
//! A [`Delivery`] is for a process that several others send to. An eBPF program (`ebpf/deliver.c`) copies each of its datagrams into
//! a ring in its memory, at traffic control or by XDP. A poll is a look at memory here, too, and a process that sleeps is woken
//! once for all the datagrams that it lacks. `docs/decisions/0061-rings.md` has reasons and figures.
//!
//! The program is the process's own, or that of a [`Service`] of the host: processes without privileges get rings from it, and none
//! sees another's.
//!
//! Owns the programs, the sockets, their memory, and the headers of Ethernet, IP and UDP. Must not know frames.

mod delivery;
mod doorbell;
mod error;
mod headers;
#[allow(unsafe_code, reason = "packets lie in memory that the kernel shares")]
mod interface;
mod port;
#[allow(unsafe_code, reason = "packets lie in memory that the kernel shares")]
mod queue;
#[allow(unsafe_code, reason = "the kernel is asked for what no library asks")]
mod socket;
mod steering;
mod target;

pub use delivery::{
    Admission, Delivery, Event, Hook, InvalidAddress, Origin, Service, ServiceAddress,
    ServiceError, ServiceOptions, ask_service,
};
pub use error::OpenError;
pub use port::{PAYLOAD_BYTES_MAX, Port, Taken};

/// Whether the programs were compiled with this library: that needs a clang.
pub const IS_BUILT: bool = cfg!(program_built);

/// Where the program of [`Port`]s sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Behind the driver, at any interface, which is left as it is. Packets are copied.
    Generic,
    /// In the driver, if it can. Some drivers restart the interface for it, and then carry no long frames or
    /// trains of packets. Packets are not copied where the driver can do that, too.
    Native,
}
