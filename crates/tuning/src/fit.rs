//! The prices of a network, from times of whole operations on it.
//!
//! A program can't ask what a message costs between two hosts: the kernel, the adapters and the switch take their parts, and so
//! do caches and wake-ups. But the model that selects paths tells what each operation takes at given prices
//! ([`tributary_algorithms::prediction`]). So the prices are those at which the model comes closest to what operations of
//! known algorithms took. What no operation tells apart keeps the ratio that it has at the prices to begin with.

use std::sync::Arc;

use tributary_algorithms::network::NetworkPrices;
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Algorithm, Carrier, Collective, Division, Radices};

/// How an operation went between hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// By a host algorithm over links.
    Links(Algorithm),
    /// By datagrams among the members of replicated groups, in levels of these radices.
    Groups(Radices),
    /// Through aggregators that are processes.
    Tree,
}

/// What an allreduce among hosts of one rank each took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// How it went.
    pub way: Way,
    /// Hosts.
    pub hosts: u32,
    /// Length of the vector.
    pub len_bytes: u64,
    /// The time.
    pub time_us: f64,
}

/// Prices, and how well they explain the times that they come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// The prices.
    pub prices: NetworkPrices,
    /// By what share the model misses a time, in the mean.
    pub mean_miss: f64,
    /// The same of the time that it misses most.
    pub worst_miss: f64,
}

/// Prices that miss the times they are made of by more, in the mean, say nothing of others.
pub const MISS_MAX: f64 = 0.25;

impl Fitted {
    /// Whether the prices are of use: they miss their own times by little, in the mean.
    #[must_use]
    pub fn explains_the_times(&self) -> bool {
        self.mean_miss <= MISS_MAX
    }
}

/// A group of prices that grow and shrink together.
type Part = fn(&mut NetworkPrices, f64);

/// What the times of links tell, of groups, and of the tree. Each part multiplies some prices.
const OF_LINKS: &[Part] = &[
    |prices, factor| {
        prices.links.send_ns *= factor;
        prices.links.receive_ns *= factor;
    },
    |prices, factor| prices.links.wire_ns *= factor,
    // One for the other: operations with few messages in a row hardly tell them apart.
    |prices, factor| {
        prices.links.send_ns *= factor;
        prices.links.receive_ns *= factor;
        prices.links.wire_ns /= factor;
    },
    |prices, factor| prices.links.link_ns_per_byte *= factor,
    |prices, factor| prices.links.copy_ns_per_byte *= factor,
];
const OF_GROUPS: &[Part] = &[
    |prices, factor| {
        prices.datagrams.further_send_ns *= factor;
        prices.datagrams.each_receive_ns *= factor;
    },
    // Groups of several sizes tell them apart: levels are calls that receive, members of a level are copies.
    |prices, factor| {
        prices.datagrams.further_send_ns *= factor;
        prices.datagrams.each_receive_ns /= factor;
    },
];
const OF_TREE: &[Part] = &[
    |prices, factor| {
        prices.aggregators.take_ns *= factor;
        prices.aggregators.reply_ns *= factor;
        prices.aggregators.latency_ns *= factor;
    },
    |prices, factor| {
        prices.aggregators.take_ns_per_byte *= factor;
        prices.aggregators.reply_ns_per_byte *= factor;
    },
];

/// The first factor that is tried, and the last.
const FACTOR_MAX: f64 = 2.0;
const FACTOR_MIN: f64 = 1.01;

/// Most times that a part is multiplied by one factor, so that what no operation tells does not run away.
const STEPS_MAX: usize = 12;

/// A step has to come closer by so much.
const LEAST_GAIN: f64 = 1e-6;

/// The prices that explain `times` best, from `start` on. None if there is no time over links, of which all others are made.
#[must_use]
pub fn fit(times: &[Timed], start: NetworkPrices) -> Option<Fitted> {
    let of = |is_it: fn(&Way) -> bool| -> Vec<Timed> {
        times.iter().filter(|timed| is_it(&timed.way)).copied().collect()
    };
    let over_links = of(|way| matches!(way, Way::Links(_)));
    if over_links.is_empty() {
        return None;
    }
    let mut prices = search(&over_links, start, OF_LINKS);
    prices = search(&of(|way| matches!(way, Way::Groups(_))), prices, OF_GROUPS);
    prices = search(&of(|way| matches!(way, Way::Tree)), prices, OF_TREE);
    let misses: Vec<f64> = times.iter().filter_map(|timed| miss(timed, &prices)).collect();
    let mean_miss = mean(&misses).exp_m1();
    let worst_miss = misses.iter().copied().fold(0.0, f64::max).exp_m1();
    Some(Fitted { prices, mean_miss, worst_miss })
}

/// The best of the searches that begin with each of the parts: what comes first takes the most.
fn search(times: &[Timed], start: NetworkPrices, parts: &[Part]) -> NetworkPrices {
    let first = |number: usize| [&parts[number..], &parts[..number]].concat();
    let found = (0..parts.len()).map(|number| descend(times, start, &first(number)));
    let miss = |prices: &NetworkPrices| mean_miss(times, prices);
    let best = found.min_by(|one, other| miss(one).total_cmp(&miss(other)));
    best.unwrap_or(start)
}

/// Multiplies one part after the other as long as that comes closer, by smaller and smaller factors.
fn descend(times: &[Timed], start: NetworkPrices, parts: &[Part]) -> NetworkPrices {
    let mut best = start;
    let mut least = mean_miss(times, &best);
    let mut factor = FACTOR_MAX;
    while factor > FACTOR_MIN {
        let mut has_moved = false;
        for part in parts {
            for by in [factor, 1.0 / factor] {
                for _ in 0..STEPS_MAX {
                    let mut tried = best;
                    part(&mut tried, by);
                    let miss = mean_miss(times, &tried);
                    if miss >= least - LEAST_GAIN {
                        break;
                    }
                    (best, least, has_moved) = (tried, miss, true);
                }
            }
        }
        if !has_moved {
            factor = factor.sqrt();
        }
    }
    best
}

fn mean_miss(times: &[Timed], prices: &NetworkPrices) -> f64 {
    mean(&times.iter().filter_map(|timed| miss(timed, prices)).collect::<Vec<_>>())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// How far a prediction is from a time, as the logarithm of their ratio; none where there is no such operation.
fn miss(timed: &Timed, prices: &NetworkPrices) -> Option<f64> {
    let predicted_us = predict_ns(timed, prices)? / 1e3;
    Some((predicted_us / timed.time_us).ln().abs())
}

fn predict_ns(timed: &Timed, prices: &NetworkPrices) -> Option<f64> {
    let &Timed { way, hosts, len_bytes, .. } = timed;
    let links = &prices.links;
    match way {
        Way::Links(algorithm) => links.time_ns(algorithm, Collective::Allreduce, hosts, len_bytes),
        Way::Groups(radices) => {
            let plan = Arc::new(Plan::even(hosts, radices)?);
            let carrier = Carrier::Copies(prices.datagrams);
            links.levels_time_ns(&plan, Division::Whole, carrier, Collective::Allreduce, len_bytes)
        }
        Way::Tree => Some(links.tree_time_ns(&prices.aggregators, hosts, len_bytes, false)),
    }
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::network::Network;

    use super::*;

    const WAYS: [Way; 5] = [
        Way::Links(Algorithm::RecursiveDoubling),
        Way::Links(Algorithm::Rabenseifner),
        Way::Links(Algorithm::Ring),
        Way::Links(Algorithm::Linear),
        Way::Tree,
    ];

    /// What operations among 8 hosts take at some prices, each off by up to a share.
    fn times_at(prices: &NetworkPrices, off: f64) -> Vec<Timed> {
        let groups = Plan::smallest_divisions(8, 32).into_iter().map(Way::Groups);
        let mut times = Vec::new();
        for way in WAYS.into_iter().chain(groups) {
            for len_bytes in [8, 256, 1024, 16 << 10, 64 << 10, 1 << 20] {
                let mut timed = Timed { way, hosts: 8, len_bytes, time_us: 0.0 };
                let Some(time_ns) = predict_ns(&timed, prices) else { continue };
                let sign = if times.len() % 2 == 0 { 1.0 } else { -1.0 };
                timed.time_us = time_ns / 1e3 * (1.0 + sign * off);
                times.push(timed);
            }
        }
        times
    }

    #[test]
    fn prices_are_found_again_in_the_times_that_they_make() {
        let mut site = NetworkPrices::from(Network::Ethernet100);
        site.links.send_ns = 1400.0;
        site.links.receive_ns = 1400.0;
        site.links.wire_ns = 5200.0;
        site.datagrams.further_send_ns = 1900.0;
        site.datagrams.each_receive_ns = 300.0;
        site.aggregators.take_ns = 3100.0;
        site.aggregators.reply_ns = 3100.0;
        for (off, allowed) in [(0.0, 0.03), (0.05, 0.08)] {
            let fitted = fit(&times_at(&site, off), Network::Ethernet25.into()).unwrap();
            assert!(fitted.mean_miss < allowed, "{fitted:?}");
            let unseen = Timed {
                way: Way::Links(Algorithm::RecursiveDoubling),
                hosts: 64,
                len_bytes: 8,
                time_us: 0.0,
            };
            let [found, right] =
                [fitted.prices, site].map(|prices| predict_ns(&unseen, &prices).unwrap());
            assert!((found / right - 1.0).abs() < allowed + 0.05, "{found} {right}");
        }
    }

    #[test]
    fn without_links_there_are_no_prices() {
        let tree = Timed { way: Way::Tree, hosts: 4, len_bytes: 8, time_us: 20.0 };
        assert_eq!(fit(&[tree], Network::Cloud.into()), None);
        assert_eq!(fit(&[], Network::Cloud.into()), None);
    }

    #[test]
    fn what_no_price_explains_is_a_miss() {
        let timed = |len_bytes, time_us| Timed {
            way: Way::Links(Algorithm::RecursiveDoubling),
            hosts: 4,
            len_bytes,
            time_us,
        };
        // A longer vector that takes less.
        let fitted = fit(&[timed(8, 1000.0), timed(64, 10.0)], Network::Cloud.into()).unwrap();
        assert!(fitted.mean_miss > 1.0 && fitted.worst_miss >= fitted.mean_miss, "{fitted:?}");
    }
}
