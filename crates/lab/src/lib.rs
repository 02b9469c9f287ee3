//! A lab: hosts, switches and aggregation nodes on one machine, each with its own network.
//!
//! Every member of a lab is a process in its own namespaces: network, host name, processes, shared
//! memory and mounts. Switches are Linux bridges and links are veth pairs, all of them in the lab's
//! namespaces and never in the machine's. Only processes hold these namespaces, and all of them
//! descend from one supervisor, the first process of a process namespace. When the supervisor ends,
//! however it ends, the kernel ends the others and removes their networks. What remains is one
//! folder and at most one empty control group, which [`down`] removes.
//!
//! In a lab with delay one process is all switches, and holds each frame for its time ([`switch`]).
//!
//! [`plan`] says what a lab consists of, `supervisor` builds it, `member` is what each member runs,
//! [`session`] runs commands in members, and [`check`] sends frames to see what links do. This crate starts the `tributary` program for the
//! daemons and knows nothing of what they do.

pub mod check;
pub mod cores;
pub mod delay;
pub mod directory;
pub mod launch;
pub mod network;
pub mod plan;
pub mod probe;
pub mod session;
pub mod switch;

mod channel;
mod lab;
mod lifecycle;
mod member;
mod messages;
mod namespaces;
mod scheduling;
mod scripts;
mod supervisor;
mod tools;

pub use lab::{Lab, OpenError};
pub use lifecycle::{DownError, UpError, UpOptions, down, up};
pub use scheduling::Scheduling;
pub use supervisor::supervise;
