//! What decides on a network that nobody has measured: the times that the model predicts.
//!
//! Every candidate is weighed, the tree and all host algorithms, at prices for the kind of network. All ranks weigh
//! the same ones and come to the same.

use std::collections::BTreeMap;

use tributary_algorithms::network::{AGGREGATOR_IN_KERNEL, AGGREGATOR_PROCESS, Network};
use tributary_algorithms::prediction::Prices;
use tributary_algorithms::{Algorithm, CollectiveKind, Radices};
use tributary_tuning::Method;

/// The most messages that a host sends at one level of a mixed-radix exchange, and one.
const RADIX_MAX: u32 = 16;

/// Bytes of an element where each host works on a part of the vector: of fewer elements than hosts, parts are empty.
const ELEMENT_BYTES: u64 = 4;

/// Above this length nothing changes any more.
const LENGTH_MAX: u64 = 1 << 30;

/// A way to carry an operation, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The host algorithm; none for the tree.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) time_ns: f64,
}

impl Candidate {
    pub(super) fn method(self) -> Method {
        if self.algorithm.is_some() { Method::Direct } else { Method::Tree }
    }
}

/// The aggregators of a communicator's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregators {
    Processes,
    InKernel,
}

/// The predictions for one communicator.
#[derive(Clone, Debug)]
pub(super) struct Predictor {
    network: Network,
    hosts: u32,
    /// None where there is no tree.
    aggregators: Option<Aggregators>,
    /// The fastest host algorithm, and whether the tree is faster, for collective and quarter of an octave.
    known: BTreeMap<(CollectiveKind, u64), (Algorithm, bool)>,
}

impl Predictor {
    pub(super) fn new(network: Network, hosts: u32, aggregators: Option<Aggregators>) -> Self {
        Self { network, hosts, aggregators, known: BTreeMap::new() }
    }

    /// The fastest method.
    pub(super) fn method(&mut self, kind: CollectiveKind, len_bytes: u64) -> Method {
        if self.fastest(kind, len_bytes).1 { Method::Tree } else { Method::Direct }
    }

    /// The fastest host algorithm.
    pub(super) fn algorithm(&mut self, kind: CollectiveKind, len_bytes: u64) -> Algorithm {
        self.fastest(kind, len_bytes).0
    }

    /// Lengths of the same quarter of an octave get one answer, that of its shortest, so that few are predicted.
    fn fastest(&mut self, kind: CollectiveKind, len_bytes: u64) -> (Algorithm, bool) {
        let len_bytes = shortest_of_quarter_octave(len_bytes.min(LENGTH_MAX));
        if let Some(known) = self.known.get(&(kind, len_bytes)) {
            return *known;
        }
        let candidates = self.candidates(kind, len_bytes);
        let is_in_tree = candidates[0].algorithm.is_none();
        let algorithm = candidates.iter().find_map(|candidate| candidate.algorithm);
        let fastest = (algorithm.expect("every collective has a host algorithm"), is_in_tree);
        self.known.insert((kind, len_bytes), fastest);
        fastest
    }

    /// All candidates, the fastest first.
    pub(super) fn candidates(&self, kind: CollectiveKind, len_bytes: u64) -> Vec<Candidate> {
        let prices = self.network.prices();
        let whole_bytes = self.whole_bytes(kind, len_bytes);
        let of_hosts = algorithms(self.hosts, whole_bytes, &prices).filter_map(|algorithm| {
            let collective = kind.rooted_at(0);
            let time_ns = prices.time_ns(algorithm, collective, self.hosts, whole_bytes)?;
            Some(Candidate { algorithm: Some(algorithm), time_ns })
        });
        let mut candidates: Vec<Candidate> = of_hosts.collect();
        candidates.extend(self.through_the_tree(kind, len_bytes));
        candidates.sort_by(|one, other| one.time_ns.total_cmp(&other.time_ns));
        candidates
    }

    fn through_the_tree(&self, kind: CollectiveKind, len_bytes: u64) -> Option<Candidate> {
        let carried_bytes = match kind {
            CollectiveKind::Scan | CollectiveKind::Exscan => self.hosts_times(len_bytes),
            _ => self.whole_bytes(kind, len_bytes),
        };
        let aggregator = match self.aggregators? {
            Aggregators::InKernel if carried_bytes <= AGGREGATOR_IN_KERNEL.segment_max_bytes => {
                AGGREGATOR_IN_KERNEL
            }
            _ => AGGREGATOR_PROCESS,
        };
        let to_one = kind == CollectiveKind::Reduce;
        let time_ns =
            self.network.prices().tree_time_ns(&aggregator, self.hosts, carried_bytes, to_one);
        Some(Candidate { algorithm: None, time_ns })
    }

    /// The vector of all hosts, where a length is that of one host's contribution.
    fn whole_bytes(&self, kind: CollectiveKind, len_bytes: u64) -> u64 {
        if kind == CollectiveKind::Allgather { self.hosts_times(len_bytes) } else { len_bytes }
    }

    fn hosts_times(&self, len_bytes: u64) -> u64 {
        len_bytes.saturating_mul(self.hosts.into())
    }
}

/// The host algorithms for vectors of this length, whether or not the collective has such a form.
fn algorithms(
    hosts: u32,
    len_bytes: u64,
    prices: &Prices,
) -> impl Iterator<Item = Algorithm> + use<> {
    use Algorithm::{Binomial, Dissemination, Linear, Rabenseifner, RecursiveDoubling, Ring};
    let has_part_for_each = len_bytes / ELEMENT_BYTES >= hosts.into();
    let in_parts = [Rabenseifner, Ring].into_iter().filter(move |_| has_part_for_each);
    // Where there would be room for a third more hosts, many of them send a message twice, and messages of different
    // rounds share links, of which the model knows nothing.
    let is_short = len_bytes <= prices.packet_max_bytes;
    let levels = Radices::candidates(hosts, RADIX_MAX)
        .filter(move |radices| is_short || 3 * radices.ranks_max() < 4 * u64::from(hosts))
        .map(|radices| Algorithm::MixedRadix { radices });
    [RecursiveDoubling, Binomial, Linear, Dissemination].into_iter().chain(in_parts).chain(levels)
}

/// The shortest length of the quarter of an octave in which a length lies.
fn shortest_of_quarter_octave(len_bytes: u64) -> u64 {
    const SHORT: u64 = 8;
    if len_bytes <= SHORT {
        return len_bytes.next_multiple_of(SHORT);
    }
    let octave = 1 << len_bytes.ilog2();
    // Powers of the fourth root of two, in thousandths.
    let factors = [1682, 1414, 1189];
    let quarters = factors.map(|factor| octave * factor / 1000);
    quarters.into_iter().find(|shortest| *shortest <= len_bytes).unwrap_or(octave)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predictor(hosts: u32, aggregators: Aggregators) -> Predictor {
        Predictor::new(Network::Ethernet25, hosts, Some(aggregators))
    }

    #[test]
    fn a_tree_of_processes_loses_where_hosts_have_cores_of_their_own() {
        for hosts in [3, 8, 15, 64, 512] {
            let mut predictor = predictor(hosts, Aggregators::Processes);
            for len_bytes in [8, 1 << 10, 1 << 16, 1 << 20] {
                let method = predictor.method(CollectiveKind::Allreduce, len_bytes);
                assert_eq!(method, Method::Direct, "{hosts} hosts, {len_bytes} B");
            }
            assert_eq!(predictor.method(CollectiveKind::Barrier, 0), Method::Direct);
        }
    }

    #[test]
    fn aggregators_inside_the_kernel_win_for_short_vectors() {
        for hosts in [4, 8, 64, 512] {
            let mut predictor = predictor(hosts, Aggregators::InKernel);
            assert_eq!(predictor.method(CollectiveKind::Allreduce, 8), Method::Tree, "{hosts}");
            assert_eq!(predictor.method(CollectiveKind::Allreduce, 1 << 16), Method::Direct);
        }
    }

    #[test]
    fn few_rounds_where_latency_rules_and_few_bytes_where_they_do() {
        let best = |network, hosts, len_bytes| {
            Predictor::new(network, hosts, None).algorithm(CollectiveKind::Allreduce, len_bytes)
        };
        assert_eq!(best(Network::Ethernet25, 4, 8), Algorithm::RecursiveDoubling);
        let levels = |radices: &[u32]| Algorithm::MixedRadix {
            radices: Radices::new(radices).expect("radices"),
        };
        assert_eq!(best(Network::Ethernet25, 3, 8), levels(&[3]));
        assert_eq!(best(Network::Ethernet25, 8, 8), levels(&[3, 3]));
        assert_eq!(best(Network::Ethernet25, 12, 8), levels(&[3, 2, 2]));
        assert_eq!(best(Network::Cloud, 16, 8), levels(&[4, 4]));
        assert_eq!(best(Network::Ethernet25, 16, 1 << 20), Algorithm::Rabenseifner);
        assert_eq!(best(Network::Ethernet25, 15, 1 << 20), Algorithm::Ring);
    }

    #[test]
    fn every_collective_has_a_candidate_of_hosts_at_any_length() {
        for kind in CollectiveKind::ALL {
            for hosts in [2, 3, 7, 64, 1000] {
                for len_bytes in [0, 1, 8, 4096, 1 << 40] {
                    predictor(hosts, Aggregators::Processes).algorithm(kind, len_bytes);
                }
            }
        }
    }

    #[test]
    fn lengths_of_a_quarter_of_an_octave_share_an_answer() {
        assert_eq!([0, 1, 8].map(shortest_of_quarter_octave), [0, 8, 8]);
        assert_eq!([1024, 1216].map(shortest_of_quarter_octave), [1024, 1024]);
        assert_eq!([1217, 1446].map(shortest_of_quarter_octave), [1217, 1217]);
        assert_eq!([1447, 1721].map(shortest_of_quarter_octave), [1447, 1447]);
        for len_bytes in [9, 1000, 65_536, 1 << 30] {
            let ratio = len_bytes as f64 / shortest_of_quarter_octave(len_bytes) as f64;
            assert!((1.0..1.26).contains(&ratio), "{len_bytes}: {ratio}");
        }
    }
}
