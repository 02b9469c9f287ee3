//! Host collective algorithms, independent of what runs them.
//!
//! An algorithm is a [`Schedule`]: what one rank sends, receives and folds, step by step. A schedule
//! owns no data and does no I/O, so the same one drives real links, MPI's own point-to-point calls, and
//! a simulator of 100,000 ranks. It takes a few hundred bytes, whatever the number of ranks or
//! elements. [`step`] says what an executor must do and which steps may overlap. [`Algorithm`] lists
//! the order in which each algorithm combines.
//!
//! [`prediction`] tells what a schedule takes on a [`network`], and [`model`] what multi-leader designs take.
//!
//! Must not know: datatypes, operators, links, hosts. Start at [`Schedule::new`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod carrier;
mod collective;
mod leaves;
pub mod model;
pub mod network;
mod phases;
pub mod plan;
pub mod prediction;
mod prices;
mod radices;
mod request;
mod schedule;
mod split;
pub mod step;

pub use carrier::{Carrier, DatagramPrices, GROUP_BYTES_MAX, GROUP_MEMBERS_MAX};
pub use collective::{Collective, CollectiveKind};
pub use leaves::Leaves;
pub use radices::{ParseRadicesError, Radices};
pub use request::{Algorithm, Division, Order, Shape, Unsupported};
pub use schedule::Schedule;
pub use split::{Span, Split};
pub use step::{Action, Buffer, Landing, Step};
