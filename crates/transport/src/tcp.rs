//! Links over TCP, between hosts.
//!
//! One system call per frame sent (header and payload gathered), one per batch of frames received:
//! a read takes whatever has arrived, and the frames in it are handed out in place. Nagle's delay is
//! off, sending is not paced, and keep-alive is on, so that a host that vanishes while the link is idle is noticed after some
//! seconds. A host that vanishes with bytes under way to it is noticed by the kernel only after its
//! retransmissions are spent, minutes later: whoever needs to know sooner asks the manager.

mod congestion;
mod connect;
mod input;
mod link;
mod listener;
mod sys;

pub use connect::{connect_tcp, connect_tcp_start};
pub use link::{TcpLink, TcpOptions};
pub use listener::TcpAcceptor;
