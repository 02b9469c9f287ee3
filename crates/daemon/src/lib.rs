//! The daemons: the aggregation node, the manager, and both together in one process.
//!
//! Owns event loops, sockets, timers, HTTP and metrics. The daemons drive the state machines of
//! `tributary-protocol`, which make all protocol decisions. The program only parses arguments and
//! calls this crate. Logs go to `tracing`; the program decides where they end up.

pub mod embedded;
pub mod limits;
pub mod manager;
pub mod node;
pub mod shutdown;
pub mod tokens;

pub use http::certificate_pem;
pub use tributary_transport::token;

mod http;
mod liveness;
mod metrics;
mod page;
