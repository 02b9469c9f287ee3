//! Benchmarks in the simulator: they repeat one collective and record its times.

mod full_hosts;
mod host_based;
mod host_memory;
mod operation;
mod samples;
mod tree;
mod tuned;

pub use full_hosts::{FullHosts, FullRun, InterHost};
pub use host_based::HostRun;
pub use host_memory::HostMemory;
pub use samples::{Quartiles, Samples, Summary};
pub use tree::{TreeBenchmark, TreeRun, is_refusal, spread_hosts};
pub use tuned::choose_algorithm;
