//! Traces: what the collectives of a real program were, rank by rank.
//!
//! A trace is a text. Its first line is `tributary-trace 1`, its second `ranks N`. Then each rank has a
//! section: one line of its own, one for each communicator, one for each operation, in order.
//!
//! ```text
//! tributary-trace 1
//! ranks 2
//! rank 0 host node1 program_ns 5000000 left_out 0 nonblocking 0
//! communicator 0 0 0-1
//! 0 allreduce 0 8 passed 120000 9500
//! ```
//!
//! `rank`: the host, how long the program ran from the end of `MPI_Init` on, how many blocking collectives
//! came after the record was full, and how many nonblocking ones there were, which are not recorded.
//! `communicator`: its number at this rank, how many earlier ones of this rank had the same members, and the
//! ranks of its members in `MPI_COMM_WORLD`, in order. An operation: the communicator's number, the
//! collective, its root, the bytes that this rank contributed, the path (`host`, `tree`, `direct` or
//! `passed`), the nanoseconds since this rank's previous operation ended, and its own nanoseconds.

mod members;
mod program;
mod read;
mod recorder;

use std::sync::Arc;

use tributary_algorithms::CollectiveKind;

pub use program::{Disagreement, Joint, OperationTimes};
pub use read::{TraceError, read};
pub use recorder::{Measured, Recorder};

/// The first line of a trace.
const FIRST_LINE: &str = "tributary-trace 1";

/// Most ranks of a trace.
pub const RANKS_MAX: u32 = 1 << 20;

/// The collectives of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// By rank; empty where a rank left nothing.
    pub ranks: Vec<RankTrace>,
}

/// What one rank recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankTrace {
    /// The name of its host.
    pub host: String,
    /// How long the program ran.
    pub program_ns: u64,
    /// Blocking collectives after the record was full.
    pub left_out: u64,
    /// Nonblocking collectives.
    pub nonblocking: u64,
    /// Its communicators, by number.
    pub communicators: Vec<TracedCommunicator>,
    /// Its operations, in order.
    pub operations: Vec<Traced>,
}

/// A communicator of a rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TracedCommunicator {
    /// How many earlier ones of this rank had the same members.
    pub ordinal: u32,
    /// Its members, by their ranks in the world. Ranks with the same members share the list.
    pub members: Arc<[u32]>,
}

/// An operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// The number of its communicator at this rank.
    pub communicator: u32,
    /// The collective.
    pub kind: CollectiveKind,
    /// Its root; 0 if it has none.
    pub root: u32,
    /// What this rank contributed.
    pub bytes: u64,
    /// How it went.
    pub path: Path,
    /// Since the end of this rank's previous operation.
    pub gap_ns: u64,
    /// Its duration.
    pub length_ns: u64,
}

/// How an operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// Inside one host.
    Host,
    /// In the tree.
    Tree,
    /// Over links between hosts.
    Direct,
    /// To the underlying MPI.
    Passed,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Host, Self::Tree, Self::Direct, Self::Passed];

    /// Its name in a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Tree => "tree",
            Self::Direct => "direct",
            Self::Passed => "passed",
        }
    }
}

#[cfg(test)]
mod tests;
