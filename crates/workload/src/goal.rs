//! GOAL: the text format of LogGOPSim and ATLAHS, in which each rank has a graph of sends, receives and
//! calculations (T. Hoefler, C. Siebert, A. Lumsdaine: Group Operation Assembly Language, ICPP 2009).
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//! a: calc 500
//! b: send 8b to 1 tag 7
//! b requires a
//! }
//! rank 1 {
//! recv 8b from 0 tag 7
//! }
//! ```
//!
//! Calculations are in nanoseconds. `x requires y`: x begins when y is done; `irequires`: when y has begun.
//! `-1` as source or tag of a receive is any. `//` and `/* */` are comments.

mod error;
mod read;
mod tokens;
mod write;

pub use error::GoalError;
pub use read::read;
pub use write::write;

/// Most ranks of a file.
pub const RANKS_MAX: u32 = 1 << 20;

/// Longest calculation, in nanoseconds: 11 days.
pub const CALC_MAX_NS: u64 = 1_000_000_000_000_000;

/// A program: the operations of each rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goal {
    /// By rank.
    pub ranks: Vec<Vec<Operation>>,
}

/// An operation of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What is done.
    pub task: Task,
    /// Which of the rank's cores does it.
    pub cpu: u8,
    /// Which of the rank's adapters; of sends and receives only.
    pub nic: u8,
    /// Operations of the rank, by their places, that must be done before.
    pub requires: Vec<u32>,
    /// Operations of the rank that must have begun before.
    pub irequires: Vec<u32>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Occupies the core.
    Calc {
        /// For how long.
        ns: u64,
    },
    /// Sends a message.
    Send {
        /// Its length.
        bytes: u32,
        /// To which rank.
        to: u32,
        /// Its tag.
        tag: u32,
    },
    /// Receives a message.
    Receive {
        /// Its length.
        bytes: u32,
        /// From which rank; none for any.
        from: Option<u32>,
        /// Its tag; none for any.
        tag: Option<u32>,
    },
}

impl Operation {
    /// An operation that waits for none, on the first core and adapter.
    #[must_use]
    pub fn new(task: Task) -> Self {
        Self { task, cpu: 0, nic: 0, requires: Vec::new(), irequires: Vec::new() }
    }

    /// The same, done after others.
    #[must_use]
    pub fn after(mut self, requires: &[u32]) -> Self {
        self.requires.extend_from_slice(requires);
        self
    }
}

impl Goal {
    /// Operations of all ranks.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests;
