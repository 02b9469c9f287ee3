//! Running one collective again and again and keeping its times, as a benchmark does.

mod full;
mod host;
mod node;
mod operation;
mod samples;
mod tree;

pub use full::{Between, FullHosts, FullRun};
pub use host::HostRun;
pub use node::HostMemory;
pub use samples::{Quartiles, Samples, Summary};
pub use tree::{TreeBenchmark, TreeRun, is_refusal, spread_hosts};
