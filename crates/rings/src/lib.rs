//! The service of a host that brings datagrams past the network stack into the memory of its jobs, which need no privileges.
//!
//! A job asks over a Unix socket (`tributary_af_xdp::messages`). It shows by its own UDP sockets which addresses are its own, so none
//! gets what goes to another.
//!
//! - **Rings**, for a process that several others send to: an eBPF program (`ebpf/deliver.c`, [`delivering`]) copies each of its
//!   datagrams into a ring in its memory, at traffic control or by XDP. `docs/decisions/0062-a-service-of-rings.md`.
//! - **AF_XDP**, for a process with one peer: an eBPF program (`ebpf/steer.c`, [`steering`]) steers the datagrams of its address to the
//!   socket of the queue that they arrived at. The service opens the sockets and hands them over. By one a process can send any packet,
//!   so only users get them whom the operator names. `docs/decisions/0067-the-service-loads-all-programs.md`.
//!
//! Owns the programs, and who may have what. Must not know frames.

mod delivering;
mod error;
mod hook;
mod service;
#[allow(unsafe_code, reason = "packets lie in memory that the kernel is given by its address")]
mod sockets;
mod steering;

pub use error::ServeError;
pub use hook::Hook;
pub use service::{Event, Service, ServiceError, ServiceOptions};

/// Whether the programs were compiled with this service: that needs a clang.
pub const IS_BUILT: bool = cfg!(program_built);
