//! The daemons: an aggregation node and the manager, and both together in one process.
//!
//! Owns event loops, listeners, the HTTP control interface and metrics. Decides no protocol matter:
//! the machines of `tributary-protocol` do. Logs through `tracing`; whoever runs a daemon says where
//! to. The paths of the control interface are described in `docs/control.md`.
//!
//! - [`node`]: an aggregation node. Its event loop is where frames go through.
//! - [`manager`]: the manager.
//! - [`embedded`]: a manager and its nodes as threads of this process.

pub mod embedded;
pub mod manager;
pub mod node;
pub mod token;

mod http;
mod metrics;
mod shutdown;

pub use shutdown::Shutdown;
pub use token::Token;
