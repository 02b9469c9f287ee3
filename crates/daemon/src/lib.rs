//! The daemons: the aggregation node and the manager.
//!
//! Owns event loops, sockets, timers, HTTP and metrics. Decides no protocol matter: that is
//! `tributary-protocol`'s, which these drive. The program only parses arguments and calls here.

pub mod manager;
pub mod shutdown;
pub mod token;
