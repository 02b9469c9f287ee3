//! The host library: collectives of the processes of one job, inside each host through shared
//! memory and between hosts through an aggregation tree or host algorithms over direct links.
//!
//! Owns what happens on a host: finding the other ranks ([`Bootstrap`]), the job's place at the
//! manager ([`Context`]), communicators and their operations ([`Communicator`]), the knobs
//! ([`Settings`]) and the counts behind the report ([`report`]). Never prints, never ends the
//! process, and starts no runtime inside an application: at most one thread, and only while
//! nonblocking operations are outstanding. Start at [`Communicator`].
//!
//! A sum of one rank with itself; `examples/client.rs` has four:
//!
//! ```
//! use std::sync::Arc;
//! use tributary_client::report::CounterRegistry;
//! use tributary_client::{
//!     Bootstrap, BootstrapError, Collective, Communicator, Context, Operation, Settings, Verdict,
//! };
//! use tributary_wire::{Datatype, Operator};
//!
//! /// What an MPI, a launcher or a socket does for several ranks.
//! struct OneRank;
//!
//! impl Bootstrap for OneRank {
//!     fn rank(&self) -> u32 {
//!         0
//!     }
//!     fn size(&self) -> u32 {
//!         1
//!     }
//!     fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
//!         all.copy_from_slice(mine);
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::from_environment(|_| None)?;
//! let context = Arc::new(Context::open(&mut OneRank, settings)?);
//! let counters = CounterRegistry::default().open("world", 1, true);
//! let hook = Arc::new(|| Verdict::GoOn);
//! let ranks = Communicator::create(&context, &mut OneRank, &counters, hook)?;
//! let own = [1.5_f64, 2.5];
//! let mut sum = [0.0_f64; 2];
//! let allreduce = Operation {
//!     collective: Collective::Allreduce,
//!     datatype: Datatype::F64,
//!     operator: Operator::Sum,
//!     elements: 2,
//!     source: own.as_ptr().cast(),
//!     target: sum.as_mut_ptr().cast(),
//!     ..Operation::BARRIER
//! };
//! // SAFETY: both vectors have two doubles, and nobody else uses them until this returns.
//! unsafe { ranks.run(&allreduce) }?;
//! assert_eq!(sum, own);
//! # Ok(())
//! # }
//! ```

mod attendant;
mod bootstrap;
mod combiner;
mod communicator;
mod context;
mod descriptors;
mod engine;
/// What a guard lends ends with the guard:
///
/// ```
/// # #[path = "exclusive.rs"] #[allow(dead_code)] mod exclusive;
/// let value = exclusive::Exclusive::new(1);
/// {
///     let mut guard = value.lock();
///     let lent: &mut i32 = &mut guard;
///     *lent += 1;
/// }
/// assert_eq!(*value.lock(), 2);
/// ```
///
/// Nobody can keep it beside a later guard. This differs in one line, and does not compile:
///
/// ```compile_fail,E0597
/// # #[path = "exclusive.rs"] #[allow(dead_code)] mod exclusive;
/// let value = exclusive::Exclusive::new(1);
/// let lent: &mut i32;
/// {
///     let mut guard = value.lock();
///     lent = &mut guard;
/// }
/// *lent += *value.lock();
/// ```
mod exclusive;
pub mod external_receiver;
mod job;
mod job_fabric;
mod leaf;
pub mod lines;
pub mod manager;
mod measurements;
mod operation;
mod placement;
mod prepared;
mod progress_hook;
mod rdma;
mod request;
mod request_state;
mod roomy_stack;
mod setup;
mod shared;

pub use bootstrap::{Bootstrap, BootstrapError};
pub use combiner::Combiner;
pub use communicator::Communicator;
pub use context::{Context, OpenError};
pub use operation::{Blocks, Collective, CollectiveError, Operation};
pub use prepared::Prepared;
pub use progress_hook::{ProgressHook, Verdict};
pub use request::Request;
pub use setup::{Unavailable, network_of};
pub use tributary_algorithms::CollectiveKind;
pub use tributary_inter_host::{PairNumber, host_addresses};
pub use tributary_report as report;
pub use tributary_selection::{DirectPath, Path, explain};
pub use tributary_settings::{
    BetweenHosts, ChannelChoice, FabricChoice, Fallback, Misspelt, NetworkChoice, Requirement,
    SettingError, Settings, SharpFailure, Sums, Switch, TransportChoice, WaitChoice, knobs,
    misspelt,
};
pub use tributary_shm_collectives::Combine;
pub use tributary_transport::adapter::{Adapter, Moderation, adapters};
pub use tributary_transport::machine::name as machine_name;
pub use tributary_tuning::AlgorithmChoice;
