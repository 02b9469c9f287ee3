//! How processes of a job wait for each other, and what ends a wait for one that is gone.
//!
//! Owns decisions, not their execution: the driver of these machines has the connections, the memory that ranks share,
//! and the clock. The host library does, and so does the swarm, which plays deaths in every state of them.
//!
//! - [`exchange`]: a communicator's set-up.
//! - [`contact`]: the link between two hosts.
//! - [`question`]: whether two hosts are in the same operation.
//! - [`pipeline`]: a stream and the ranks of a host, and when its lock is asked for.
//! - [`awaited`]: what a rank looks at while it waits.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod awaited;
pub mod contact;
pub mod exchange;
pub mod pipeline;
pub mod question;

#[cfg(feature = "planted-bugs")]
use tributary_failover::planted;
