//! Which algorithm carries which operation.

use serde::{Deserialize, Serialize};
use tributary_algorithms::model::Costs;
use tributary_algorithms::{Algorithm, Collective, Order, Schedule, Shape};

use crate::settings::AlgorithmChoice;
use crate::tuning::CostsRow;

/// How algorithms are chosen; the same at all hosts, so that they walk matching schedules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// Overrules everything else where it has a form for the collective.
    named: AlgorithmChoice,
    /// Measured constants, for the model.
    costs: Option<CostsRow>,
}

/// Costs to choose by: TCP on a 10 Gb/s network, and one core's memory. They order the algorithms
/// about right on other networks too.
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

impl Choice {
    pub(crate) fn new(named: AlgorithmChoice, costs: Option<CostsRow>) -> Self {
        Self { named, costs }
    }

    /// The algorithm for an operation of `len_bytes` among `hosts` hosts: the named one, else the
    /// one measured best, else the model's.
    pub(super) fn algorithm(
        &self,
        collective: Collective,
        hosts: u32,
        len_bytes: u64,
        measured: AlgorithmChoice,
    ) -> Algorithm {
        let shape = Shape { ranks: hosts, elements: len_bytes, order: Order::Any };
        let has_form =
            |algorithm: &Algorithm| Schedule::new(*algorithm, collective, shape, 0).is_ok();
        let preferred = [self.named, measured].into_iter().filter_map(AlgorithmChoice::algorithm);
        if let Some(preferred) = preferred.into_iter().find(has_form) {
            return preferred;
        }
        let costs = self.costs.map_or(TYPICAL, Costs::from);
        let is_long = hosts > 2 && len_bytes >= SHARED_FROM_BYTES;
        match collective {
            Collective::Allreduce => costs.best_allreduce(hosts, len_bytes, false),
            Collective::Reduce { .. } if is_long => Algorithm::Rabenseifner,
            Collective::Broadcast { .. } if is_long => Algorithm::Ring,
            Collective::Barrier => Algorithm::Dissemination,
            _ => Algorithm::Binomial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLLECTIVES: [Collective; 4] = [
        Collective::Allreduce,
        Collective::Reduce { root: 1 },
        Collective::Broadcast { root: 1 },
        Collective::Barrier,
    ];

    #[test]
    fn whatever_is_named_there_is_a_schedule_for_everything() {
        for named in AlgorithmChoice::all() {
            for collective in COLLECTIVES {
                for (hosts, elements) in [(2, 1), (7, 3), (8, 1 << 20)] {
                    let algorithm = Choice::new(named, None).algorithm(
                        collective,
                        hosts,
                        elements,
                        AlgorithmChoice::Auto,
                    );
                    let shape = Shape { ranks: hosts, elements, order: Order::Any };
                    assert!(Schedule::new(algorithm, collective, shape, 0).is_ok());
                }
            }
        }
    }

    #[test]
    fn the_named_algorithm_is_taken_where_it_has_the_form() {
        let (auto, binomial) = (AlgorithmChoice::Auto, AlgorithmChoice::Binomial);
        let allreduce = Collective::Allreduce;
        let choice = Choice::new(AlgorithmChoice::Ring, None);
        assert_eq!(choice.algorithm(allreduce, 4, 8, binomial), Algorithm::Ring);
        let barrier = choice.algorithm(Collective::Barrier, 4, 0, auto);
        assert_eq!(barrier, Algorithm::Dissemination);
        let choice = Choice::new(auto, None);
        assert_eq!(choice.algorithm(allreduce, 2, 8, auto), Algorithm::RecursiveDoubling);
        assert_eq!(choice.algorithm(allreduce, 2, 8, binomial), Algorithm::Binomial);
    }
}
