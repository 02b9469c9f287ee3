//! A lab: hosts, switches and aggregation nodes of one machine, each with a network of its own.
//!
//! Every member of a lab is a process in namespaces of its own: network, host name, processes,
//! shared memory and mounts. Switches are Linux bridges, links are veth pairs, and all of them lie
//! in the lab's namespaces, never in the machine's. Nothing holds a namespace but processes, and
//! all of these descend from one supervisor in a process namespace of its own: when the supervisor ends,
//! however it ends, the kernel ends the others and takes the networks with them. What is left is
//! one folder and at most one empty control group, which [`down`] removes.
//!
//! Start reading at [`plan`] for what a lab consists of, at `supervisor` for how it comes to be, at
//! `member` for what a member does, and at [`session`] for how commands run in it. This crate starts
//! the `tributary` program for the daemons and knows nothing of what they do.

pub mod directory;
pub mod launch;
pub mod network;
pub mod plan;
pub mod session;

mod channel;
mod lab;
mod lifecycle;
mod member;
mod namespaces;
mod scheduling;
mod scripts;
mod supervisor;
mod tools;

pub use lab::{Lab, OpenError};
pub use lifecycle::{DownError, UpError, UpOptions, down, up};
pub use scheduling::Scheduling;
pub use supervisor::supervise;
