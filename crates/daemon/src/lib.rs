//! The daemons: the aggregation node, the manager, and both together in one process.
//!
//! Owns event loops, sockets, timers, HTTP and metrics. Decides no protocol matter: that is
//! `tributary-protocol`'s, which these drive. The program only parses arguments and calls here.
//! Logs through `tracing`; the program says where to.

pub mod embedded;
pub mod limits;
pub mod manager;
pub mod node;
pub mod shutdown;

pub use http::certificate_pem;
pub use tributary_transport::token;

mod http;
mod liveness;
mod metrics;
