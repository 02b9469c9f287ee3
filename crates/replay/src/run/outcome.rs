//! What came of a run.

use std::collections::BTreeMap;

use tributary_algorithms::CollectiveKind;
use tributary_sim::engine::Picos;
use tributary_sim::measure::Quartiles;
use tributary_workload::Call;

/// Most operations of a class whose times are kept, for quartiles.
const KEPT_MAX: usize = 1 << 20;

/// Calls that are alike: of one collective and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The collective.
    pub kind: CollectiveKind,
    /// A rank's contribution.
    pub bytes: u64,
}

impl Class {
    /// The class of a call.
    #[must_use]
    pub fn of(call: Call) -> Self {
        Self { kind: call.kind, bytes: call.bytes }
    }
}

/// How long the operations of one class took, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassTimes {
    /// How many there were.
    pub operations: u64,
    /// The sum, over operations, of the mean over ranks. Waiting for the last rank to come is in it.
    pub mean_us: f64,
    /// The sum, over operations, of the shortest time of a rank: about that of the rank that came last,
    /// which waits for no other.
    pub shortest_us: f64,
    /// The shortest times, one for each of the first operations.
    shortest: Vec<f64>,
}

impl ClassTimes {
    /// Adds an operation with the times of its ranks: their sum and number, and the shortest.
    pub fn add(&mut self, sum_us: f64, ranks: u32, shortest_us: f64) {
        self.operations += 1;
        self.mean_us += sum_us / f64::from(ranks.max(1));
        self.shortest_us += shortest_us;
        if self.shortest.len() < KEPT_MAX {
            self.shortest.push(shortest_us);
        }
    }

    /// Quartiles of the shortest times; none if there are none.
    #[must_use]
    pub fn quartiles(&self) -> Option<Quartiles> {
        (!self.shortest.is_empty()).then(|| Quartiles::of(&self.shortest))
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// When the last rank was done.
    pub total_us: f64,
    /// The sum over ranks of their computing.
    pub compute_us: f64,
    /// The sum over ranks of the time in collectives.
    pub collectives_us: f64,
    /// By class.
    pub classes: BTreeMap<Class, ClassTimes>,
    /// Communicators, or parts of them, that have a tree.
    pub trees: u32,
    /// Those whose tree the manager or an aggregator refused.
    pub refused: u32,
}

impl Outcome {
    pub(super) fn of(trees: u32, refused: u32) -> Self {
        Self { trees, refused, ..Self::default() }
    }

    pub(super) fn ends(&mut self, at: Picos) {
        self.total_us = self.total_us.max(at.as_us());
    }

    pub(super) fn computes(&mut self, span: Picos) {
        self.compute_us += span.as_us();
    }

    pub(super) fn add(&mut self, class: Class, sum_us: f64, ranks: u32, shortest_us: f64) {
        self.collectives_us += sum_us;
        self.classes.entry(class).or_default().add(sum_us, ranks, shortest_us);
    }
}
