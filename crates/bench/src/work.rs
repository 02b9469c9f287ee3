//! What the ranks of a benchmark run.

use serde::{Deserialize, Serialize};
use tributary_client::CollectiveKind;
use tributary_wire::{Datatype, Operator};

/// What every rank runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The collective that is timed.
    pub collective: Collective,
    /// The type of an element.
    pub datatype: Datatype,
    /// What a reduction combines elements by; else the collective's own operator.
    pub operator: Operator,
    /// The sizes, one after the other.
    pub steps: Vec<Step>,
    /// Whether ranks check results.
    pub verify: bool,
    /// Whether to start operations, compute, and then wait for them.
    pub overlap: bool,
}

/// One size of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Length of a rank's vector.
    pub size_bytes: u64,
    /// Operations before those that are timed.
    pub warmup: u64,
    /// Operations that are timed.
    pub iterations: u64,
}

/// A collective that can be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collective {
    /// Every rank gets the reduction of all vectors.
    Allreduce,
    /// Rank 0 gets the reduction of all vectors.
    Reduce,
    /// No data: every rank waits for all others.
    Barrier,
    /// Every rank gets rank 0's vector.
    Bcast,
}

impl Collective {
    /// As the library knows it.
    #[must_use]
    pub fn kind(self) -> CollectiveKind {
        match self {
            Self::Allreduce => CollectiveKind::Allreduce,
            Self::Reduce => CollectiveKind::Reduce,
            Self::Barrier => CollectiveKind::Barrier,
            Self::Bcast => CollectiveKind::Broadcast,
        }
    }

    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.kind().name()
    }
}
