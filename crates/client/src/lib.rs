//! The host library: collectives of the processes of one job, inside each host through shared
//! memory and between hosts through an aggregation tree or host algorithms over direct links.
//!
//! Owns what happens on a host: finding the other ranks ([`Bootstrap`]), the job's place at the
//! manager ([`Context`]), communicators and their operations ([`Communicator`]), the knobs
//! ([`Settings`]) and the counts behind the report ([`report`]). Never prints, never ends the
//! process, and starts no runtime inside an application: at most one thread, and only while
//! nonblocking operations are outstanding. Start at [`Communicator`].

mod bootstrap;
mod communicator;
mod context;
mod engine;
mod express;
mod kernels;
pub mod knobs;
mod leaders;
pub mod manager;
mod mesh;
mod on_host;
mod operation;
pub mod outsider;
mod pipeline;
mod plan;
pub mod report;
mod request;
mod seat;
mod settings;
mod stripes;
mod tree;
mod trees;
pub mod tuning;
mod ways;

pub use bootstrap::{Bootstrap, BootstrapError};
pub use communicator::{Communicator, Unavailable, Verdict, WhileWaiting};
pub use context::{Context, OpenError};
pub use express::{Express, Sent};
pub use kernels::PairNumber;
pub use operation::{Blocks, Collective, CollectiveError, Operation};
pub use report::Way;
pub use request::Request;
pub use tributary_transport::machine::name as machine_name;

pub use settings::{
    AlgorithmChoice, BetweenHosts, ChannelChoice, Fallback, SettingError, Settings,
    TransportChoice, WaitChoice,
};
