//! The host algorithm where neither a measurement nor a prediction tells: the one that is named, else the cost model's.

use tributary_algorithms::model::Costs;
use tributary_algorithms::{Algorithm, CollectiveKind, Order, Schedule, Shape};
use tributary_tuning::AlgorithmChoice;

/// Constants to choose by where nobody has measured any: TCP on a 10 Gb/s network, and one core's
/// memory. They order the algorithms about right on other networks too.
const TYPICAL: Costs = Costs {
    network_startup_ns: 15_000.0,
    network_ns_per_byte: 0.8,
    memory_startup_ns: 200.0,
    memory_ns_per_byte: 0.08,
    reduce_ns_per_byte: 0.1,
};

/// From this length on, a tree's root would send or receive the vector too often: reduce and
/// broadcast cut it in shares. By the model: `lg h (a + n b)` against `2 lg h a + 2 n b`.
const SHARED_FROM_BYTES: u64 = 32 << 10;

/// Longest vector of a reduce-scatter that goes whole: a ring moves less, in a round for every host.
const WHOLE_BYTES_MAX: u64 = 4096;

/// Up to so many hosts one of them reduces it for all: two rounds, and a message to and from each other.
const REDUCED_BY_ONE_MAX: u32 = 8;

/// How algorithms are chosen; the same at all hosts, so that they walk matching schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Model {
    /// Overrules everything else where it has a form for the collective.
    named: AlgorithmChoice,
    /// Measured constants.
    costs: Option<Costs>,
}

impl Model {
    pub(super) fn new(named: AlgorithmChoice, costs: Option<Costs>) -> Self {
        Self { named, costs }
    }

    /// The constants that were measured on this system, if any were.
    pub(super) fn measured_costs(&self) -> Option<Costs> {
        self.costs
    }

    /// The algorithm that is named, else the one measured best, if it has the form.
    pub(super) fn preferred_algorithm(
        &self,
        kind: CollectiveKind,
        hosts: u32,
        measured: AlgorithmChoice,
    ) -> Option<Algorithm> {
        let preferred = [self.named, measured].into_iter().filter_map(AlgorithmChoice::algorithm);
        preferred.into_iter().find(|algorithm| has_form(*algorithm, kind, hosts))
    }

    /// The algorithm for an operation of `len_bytes` among `hosts` hosts where none is preferred.
    pub(super) fn algorithm(&self, kind: CollectiveKind, hosts: u32, len_bytes: u64) -> Algorithm {
        let costs = self.costs.unwrap_or(TYPICAL);
        let is_long = hosts > 2 && len_bytes >= SHARED_FROM_BYTES;
        match kind {
            CollectiveKind::Allreduce => costs.best_allreduce(hosts, len_bytes, false),
            CollectiveKind::Reduce if is_long => Algorithm::Rabenseifner,
            CollectiveKind::Broadcast if is_long => Algorithm::Ring,
            CollectiveKind::Barrier | CollectiveKind::Allgather => Algorithm::Dissemination,
            CollectiveKind::ReduceScatter if hosts == 2 || len_bytes > WHOLE_BYTES_MAX => {
                Algorithm::Ring
            }
            CollectiveKind::ReduceScatter if hosts <= REDUCED_BY_ONE_MAX => Algorithm::Linear,
            CollectiveKind::ReduceScatter | CollectiveKind::Scan | CollectiveKind::Exscan => {
                Algorithm::RecursiveDoubling
            }
            CollectiveKind::Reduce | CollectiveKind::Broadcast => Algorithm::Binomial,
        }
    }
}

/// Whether there is a schedule of the algorithm for the collective, whatever its root and length.
fn has_form(algorithm: Algorithm, kind: CollectiveKind, hosts: u32) -> bool {
    let shape = Shape { ranks: hosts, elements: 1, order: Order::Any };
    Schedule::new(algorithm, kind.rooted_at(0), shape, 0).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn algorithm(
        named: AlgorithmChoice,
        measured: AlgorithmChoice,
        kind: CollectiveKind,
        hosts: u32,
        len_bytes: u64,
    ) -> Algorithm {
        let model = Model::new(named, None);
        let preferred = model.preferred_algorithm(kind, hosts, measured);
        preferred.unwrap_or_else(|| model.algorithm(kind, hosts, len_bytes))
    }

    #[test]
    fn whatever_is_named_there_is_a_schedule_for_everything() {
        for named in AlgorithmChoice::all() {
            for kind in CollectiveKind::ALL {
                for (hosts, elements) in [(2, 1), (7, 3), (8, 1 << 20)] {
                    let algorithm = algorithm(named, AlgorithmChoice::Auto, kind, hosts, elements);
                    let shape = Shape { ranks: hosts, elements, order: Order::Any };
                    assert!(Schedule::new(algorithm, kind.rooted_at(1), shape, 0).is_ok());
                }
            }
        }
    }

    #[test]
    fn the_named_algorithm_is_taken_where_it_has_the_form() {
        use AlgorithmChoice::{Auto, Binomial, Ring};
        use CollectiveKind::{Allreduce, Barrier};
        assert_eq!(algorithm(Ring, Binomial, Allreduce, 4, 8), Algorithm::Ring);
        assert_eq!(algorithm(Ring, Auto, Barrier, 4, 0), Algorithm::Dissemination);
        assert_eq!(algorithm(Auto, Auto, Allreduce, 2, 8), Algorithm::RecursiveDoubling);
        assert_eq!(algorithm(Auto, Binomial, Allreduce, 2, 8), Algorithm::Binomial);
    }
}
