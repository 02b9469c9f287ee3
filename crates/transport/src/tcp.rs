//! Links over TCP, between hosts.
//!
//! Sending costs one system call per frame (header and payload gathered), receiving one per batch:
//! a read takes whatever has arrived, and the frames in it are handed out in place. Nagle's delay
//! is off and sending is not paced. Keep-alive is on, so that the kernel notices within 11 s
//! when a host vanishes while the link is idle. If a host vanishes while bytes are in flight to it,
//! the kernel notices only after its last retransmission, a quarter of a minute later (before Linux
//! 6.15, a quarter of an hour).

mod congestion;
mod connect;
mod input;
mod link;
mod listener;
mod sys;

pub use connect::{connect_tcp, connect_tcp_start};
pub use link::{TcpLink, TcpOptions};
pub use listener::TcpAcceptor;
