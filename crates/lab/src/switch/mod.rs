//! The switch in user space of a lab with delay: it holds every frame for its time.
//!
//! Kernels of virtual machines often lack `netem`, and with jitter `netem` lets frames overtake each other, so a lab
//! with delay has this process instead of bridges. Each member's `eth0` is a TAP device whose other end is here.
//! `queues` decides, `ports` makes and moves, `counts` is what the switch tells, and `client` asks it.

mod client;
mod counts;
mod header;
mod ports;
mod processor;
mod queues;
mod running;

pub use client::{AskError, ask};
pub use counts::{Lengths, PortCounts, SwitchCounts};
pub(crate) use ports::{UNREAD_MAX, check};
pub(crate) use running::run;
