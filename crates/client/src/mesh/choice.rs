//! Which algorithm carries which operation.

use serde::{Deserialize, Serialize};
use tributary_algorithms::model::Costs;
use tributary_algorithms::{Algorithm, Collective, Order, Schedule, Shape};

use crate::settings::AlgorithmChoice;

/// How algorithms are chosen; the same at all hosts, so that they walk matching schedules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// Overrules everything else where it has a form for the collective.
    named: AlgorithmChoice,
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
    pub(crate) fn new(named: AlgorithmChoice) -> Self {
        Self { named }
    }

    /// The algorithm for an operation of `len_bytes` among `hosts` hosts.
    pub(super) fn algorithm(
        &self,
        collective: Collective,
        hosts: u32,
        len_bytes: u64,
    ) -> Algorithm {
        let shape = Shape { ranks: hosts, elements: len_bytes, order: Order::Any };
        let has_form =
            |algorithm: &Algorithm| Schedule::new(*algorithm, collective, shape, 0).is_ok();
        if let Some(named) = self.named.algorithm().filter(has_form) {
            return named;
        }
        let is_long = hosts > 2 && len_bytes >= SHARED_FROM_BYTES;
        match collective {
            Collective::Allreduce => TYPICAL.best_allreduce(hosts, len_bytes, false),
            Collective::Reduce { .. } if is_long => Algorithm::Rabenseifner,
            Collective::Broadcast { .. } if is_long => Algorithm::Ring,
            Collective::Barrier => Algorithm::Dissemination { radix: 2 },
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
        for named in AlgorithmChoice::ALL {
            for collective in COLLECTIVES {
                for (hosts, elements) in [(2, 1), (7, 3), (8, 1 << 20)] {
                    let algorithm = Choice::new(named).algorithm(collective, hosts, elements);
                    let shape = Shape { ranks: hosts, elements, order: Order::Any };
                    assert!(Schedule::new(algorithm, collective, shape, 0).is_ok());
                }
            }
        }
    }

    #[test]
    fn the_named_algorithm_is_taken_where_it_has_the_form() {
        let choice = Choice::new(AlgorithmChoice::Ring);
        assert_eq!(choice.algorithm(Collective::Allreduce, 4, 8), Algorithm::Ring);
        let barrier = choice.algorithm(Collective::Barrier, 4, 0);
        assert_eq!(barrier, Algorithm::Dissemination { radix: 2 });
        let choice = Choice::new(AlgorithmChoice::Auto);
        assert_eq!(choice.algorithm(Collective::Allreduce, 2, 8), Algorithm::RecursiveDoubling);
    }
}
