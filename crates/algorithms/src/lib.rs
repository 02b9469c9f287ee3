//! Host collective algorithms, written once for everyone who runs them.
//!
//! An algorithm is a [`Schedule`]: what one rank sends, receives and folds, produced step by step
//! from a few numbers. It owns no data and does no I/O, so that the same schedule drives real links,
//! MPI's own point-to-point calls, and a simulator of 100,000 ranks; a schedule is a few hundred
//! bytes whatever the number of ranks or elements. [`step`] says what an executor must do and which
//! steps may overlap. [`Algorithm`] says of each algorithm in which order it combines.
//!
//! [`model`] predicts what algorithms and multi-leader designs cost.
//!
//! Must not know: datatypes, operators, links, hosts. Start at [`Schedule::new`].
#![no_std]
#![forbid(unsafe_code)]

mod collective;
pub mod model;
mod phases;
mod request;
mod schedule;
mod split;
pub mod step;

pub use collective::{Collective, CollectiveKind};
pub use request::{Algorithm, Order, Shape, Unsupported};
pub use schedule::Schedule;
pub use split::{Span, Split};
pub use step::{Action, Buffer, Landing, Step};
