//! Running one collective again and again and keeping its times, as a benchmark does.

mod host;
mod samples;
mod tree;

pub use host::HostRun;
pub use samples::{Quartiles, Samples, Summary};
pub use tree::{TreeBenchmark, TreeRun, is_refusal, spread_hosts};
