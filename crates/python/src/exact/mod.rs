//! Exact sums in Python: of the elements that all ranks have, and accumulators that a program keeps.
//!
//! Ranks meet in an allreduce of integers, so a sum goes whatever way such an allreduce goes, and in one operation.

mod accumulator;
mod axes;
mod over_ranks;
mod shared;

pub(crate) use accumulator::ExactSum;
