//! What decides on a network that nobody has measured: the times that the model predicts.
//!
//! Every candidate is weighed, the tree, all host algorithms, and replicated groups, at prices for the kind of network.
//! All ranks weigh the same ones and come to the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_algorithms::network::{AGGREGATOR_IN_KERNEL, NetworkPrices};
use tributary_algorithms::prediction::Prices;
use tributary_algorithms::{
    Algorithm, Carrier, Collective, CollectiveKind, Division, Leaves, Radices,
};
use tributary_inter_host::goes_by_groups;
use tributary_tuning::{MessageCarrier, Method};

use super::groups;

/// The most messages that a host sends at one level of a mixed-radix exchange, and one.
const RADIX_MAX: u32 = 16;

/// Bytes of an element where each host works on a part of the vector: of fewer elements than hosts, parts are empty.
const ELEMENT_BYTES: u64 = 4;

/// Above this length nothing changes any more.
const LENGTH_MAX: u64 = 1 << 30;

/// A way to carry an operation between hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Tree,
    /// A host algorithm, and what carries its messages.
    Hosts(Algorithm, MessageCarrier),
}

impl Way {
    pub(super) fn method(self) -> Method {
        match self {
            Self::Tree => Method::Tree,
            Self::Hosts(..) => Method::Direct,
        }
    }

    pub(super) fn is_by_groups(self) -> bool {
        matches!(self, Self::Hosts(_, MessageCarrier::Datagrams))
    }
}

/// A way, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) way: Way,
    pub(super) time_ns: f64,
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
    prices: NetworkPrices,
    leaves: Leaves,
    /// None where there is no tree.
    aggregators: Option<Aggregators>,
    /// The levels of replicated groups, if there are any.
    groups: Option<Radices>,
    /// For collective and quarter of an octave.
    known: BTreeMap<(CollectiveKind, u64, bool), Fastest>,
}

/// What is the fastest for one collective and length.
#[derive(Clone, Copy, Debug)]
struct Fastest {
    way: Way,
    /// The fastest of those over links.
    over_links: Algorithm,
}

impl Predictor {
    pub(super) fn new(
        prices: NetworkPrices,
        leaves: Leaves,
        aggregators: Option<Aggregators>,
    ) -> Self {
        Self { prices, leaves, aggregators, groups: None, known: BTreeMap::new() }
    }

    /// The same where hosts are members of replicated groups, in levels of these radices.
    pub(super) fn with_groups(self, groups: Option<Radices>) -> Self {
        Self { groups, ..self }
    }

    /// The fastest way.
    pub(super) fn way(&mut self, kind: CollectiveKind, len_bytes: u64) -> Way {
        self.fastest(kind, len_bytes).way
    }

    /// The fastest host algorithm over links.
    pub(super) fn algorithm(&mut self, kind: CollectiveKind, len_bytes: u64) -> Algorithm {
        self.fastest(kind, len_bytes).over_links
    }

    /// Lengths of the same quarter of an octave get one answer, that of its shortest, so that few are predicted.
    fn fastest(&mut self, kind: CollectiveKind, len_bytes: u64) -> Fastest {
        // Groups may carry the shortest, and not all that share its answer.
        let may_go_by_groups = goes_by_groups(kind, len_bytes as usize);
        let len_bytes = shortest_of_quarter_octave(len_bytes.min(LENGTH_MAX));
        let class = (kind, len_bytes, may_go_by_groups);
        if let Some(known) = self.known.get(&class) {
            return *known;
        }
        let candidates = self.candidates(kind, len_bytes);
        let over_links = candidates.iter().find_map(|candidate| match candidate.way {
            Way::Hosts(algorithm, MessageCarrier::Links) => Some(algorithm),
            Way::Hosts(_, MessageCarrier::Datagrams) | Way::Tree => None,
        });
        let over_links = over_links.expect("every collective has a host algorithm");
        let mut ways = candidates.iter().map(|candidate| candidate.way);
        let way = ways.find(|way| may_go_by_groups || !way.is_by_groups());
        let fastest = Fastest { way: way.expect("links carry everything"), over_links };
        self.known.insert(class, fastest);
        fastest
    }

    /// All candidates, the fastest first.
    pub(super) fn candidates(&self, kind: CollectiveKind, len_bytes: u64) -> Vec<Candidate> {
        let prices = self.prices.links;
        let whole_bytes = self.whole_bytes(kind, len_bytes);
        let of_hosts = algorithms(self.hosts(), whole_bytes, &prices).filter_map(|algorithm| {
            let collective = kind.rooted_at(0);
            let time_ns = self.over_links_ns(algorithm, collective, whole_bytes)?;
            Some(Candidate { way: Way::Hosts(algorithm, MessageCarrier::Links), time_ns })
        });
        let mut candidates: Vec<Candidate> = of_hosts.collect();
        candidates.extend(self.through_the_tree(kind, len_bytes));
        candidates.extend(self.by_groups(kind, len_bytes));
        candidates.sort_by(|one, other| one.time_ns.total_cmp(&other.time_ns));
        candidates
    }

    /// Levels divide hosts leaf by leaf; all other algorithms take them as they are numbered.
    fn over_links_ns(
        &self,
        algorithm: Algorithm,
        collective: Collective,
        len_bytes: u64,
    ) -> Option<f64> {
        let links = &self.prices.links;
        match algorithm {
            Algorithm::MixedRadix { radices } if self.leaves.count() > 1 => {
                let plan = Arc::new(self.leaves.plan(radices)?);
                links.levels_time_ns(&plan, Division::Whole, Carrier::Links, collective, len_bytes)
            }
            _ => links.time_ns(algorithm, collective, self.hosts(), len_bytes),
        }
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
            _ => self.prices.aggregators,
        };
        let to_one = kind == CollectiveKind::Reduce;
        let time_ns =
            self.prices.links.tree_time_ns(&aggregator, self.hosts(), carried_bytes, to_one);
        Some(Candidate { way: Way::Tree, time_ns })
    }

    fn by_groups(&self, kind: CollectiveKind, len_bytes: u64) -> Option<Candidate> {
        let radices = self.groups.filter(|_| goes_by_groups(kind, len_bytes as usize))?;
        let time_ns = groups::time_ns(&self.leaves, radices, &self.prices, len_bytes)?;
        let algorithm = Algorithm::MixedRadix { radices };
        Some(Candidate { way: Way::Hosts(algorithm, MessageCarrier::Datagrams), time_ns })
    }

    /// The vector of all hosts, where a length is that of one host's contribution.
    fn whole_bytes(&self, kind: CollectiveKind, len_bytes: u64) -> u64 {
        if kind == CollectiveKind::Allgather { self.hosts_times(len_bytes) } else { len_bytes }
    }

    fn hosts_times(&self, len_bytes: u64) -> u64 {
        len_bytes.saturating_mul(self.hosts().into())
    }

    fn hosts(&self) -> u32 {
        self.leaves.hosts()
    }
}

/// Whether replicated groups in these levels are faster at such prices than any host algorithm over links.
pub(super) fn groups_win(leaves: &Leaves, radices: Radices, prices: &NetworkPrices) -> bool {
    let mut predictor = Predictor::new(*prices, leaves.clone(), None).with_groups(Some(radices));
    predictor.way(CollectiveKind::Allreduce, groups::SHORT_BYTES).is_by_groups()
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
    use tributary_algorithms::network::Network;

    use super::*;

    fn predictor(hosts: u32, aggregators: Aggregators) -> Predictor {
        Predictor::new(Network::Ethernet25.into(), Leaves::unknown(hosts), Some(aggregators))
    }

    #[test]
    fn a_tree_of_processes_loses_where_hosts_have_cores_of_their_own() {
        for hosts in [3, 8, 15, 64, 512] {
            let mut predictor = predictor(hosts, Aggregators::Processes);
            for len_bytes in [8, 1 << 10, 1 << 16, 1 << 20] {
                let method = predictor.way(CollectiveKind::Allreduce, len_bytes).method();
                assert_eq!(method, Method::Direct, "{hosts} hosts, {len_bytes} B");
            }
            assert_eq!(predictor.way(CollectiveKind::Barrier, 0).method(), Method::Direct);
        }
    }

    #[test]
    fn aggregators_inside_the_kernel_win_for_short_vectors() {
        for hosts in [4, 8, 64, 512] {
            let mut predictor = predictor(hosts, Aggregators::InKernel);
            assert_eq!(predictor.way(CollectiveKind::Allreduce, 8), Way::Tree, "{hosts}");
            let long = predictor.way(CollectiveKind::Allreduce, 1 << 16);
            assert_eq!(long.method(), Method::Direct);
        }
    }

    #[test]
    fn groups_win_for_short_vectors_where_hosts_have_cores_of_their_own() {
        for network in
            [Network::Ethernet10, Network::Ethernet25, Network::Ethernet100, Network::Cloud]
        {
            for hosts in [3, 4, 8, 16, 64, 512] {
                let radices =
                    groups::fastest_radices(&Leaves::unknown(hosts), Some(&network.into()));
                let mut predictor = Predictor::new(
                    network.into(),
                    Leaves::unknown(hosts),
                    Some(Aggregators::Processes),
                )
                .with_groups(radices);
                assert!(predictor.way(CollectiveKind::Allreduce, 8).is_by_groups(), "{hosts}");
                assert!(predictor.way(CollectiveKind::Barrier, 0).is_by_groups(), "{hosts}");
                assert!(!predictor.way(CollectiveKind::Broadcast, 8).is_by_groups());
                assert!(!predictor.way(CollectiveKind::Allreduce, 1 << 14).is_by_groups());
                // Of the same quarter of an octave.
                assert!(predictor.way(CollectiveKind::Allreduce, 1024).is_by_groups());
                assert!(!predictor.way(CollectiveKind::Allreduce, 1025).is_by_groups());
            }
        }
    }

    #[test]
    fn few_rounds_where_latency_rules_and_few_bytes_where_they_do() {
        let best = |network: Network, hosts, len_bytes| {
            Predictor::new(network.into(), Leaves::unknown(hosts), None)
                .algorithm(CollectiveKind::Allreduce, len_bytes)
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
