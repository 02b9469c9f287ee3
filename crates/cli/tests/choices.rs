//! What the library takes on a network that nobody has measured, judged by the simulator: it tries every host algorithm,
//! replicated groups and the tree, and what is taken may be 10 % slower than the fastest of them.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::sync::Arc;

use tributary_algorithms::network::{Network, NetworkPrices};
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{
    Algorithm, CollectiveKind, GROUP_BYTES_MAX, GROUP_MEMBERS_MAX, Radices,
};
use tributary_client::Settings;
use tributary_client::explain::{Case, explain};
use tributary_sim::fabric::Vertex;
use tributary_sim::measure::{HostRun, TreeBenchmark};
use tributary_sim::preset::{self, Preset};
use tributary_tuning::{MessageCarrier, Tuning};

/// How much slower than the fastest what is taken may be.
const SLOWER_MAX: f64 = 1.10;

/// Hosts below a leaf switch, beside a host that runs an aggregator.
const LEAF_HOSTS: u32 = 16;

/// Longest vectors for which ways are simulated that send whole vectors to one host, or through aggregators: the time
/// that they take is out of question for longer ones.
const GATHERED_MAX_BYTES: usize = 64 << 10;

/// The same of ways in which hosts exchange whole vectors.
const EXCHANGED_MAX_BYTES: usize = 256 << 10;

/// The name of a way by groups whose levels are those of an algorithm.
fn by_groups(algorithm: &str) -> String {
    format!("datagrams, {algorithm}")
}

/// The preset of a kind of network, with as many leaf switches as the hosts need.
fn system(network: Network, hosts: u32) -> (Preset, Vec<Vertex>) {
    let (down, up) = if hosts < LEAF_HOSTS {
        (format!("[{}]", hosts + 1), "[1]")
    } else {
        (format!("[{}, {}]", LEAF_HOSTS + 1, hosts.div_ceil(LEAF_HOSTS) + 1), "[1, 16]")
    };
    let fabric = format!("[fabric]\nkind = \"fat-tree\"\ndown = {down}\nup = {up}\n");
    let text = format!("name = \"judged\"\nbase = \"{}\"\n{fabric}", network.name());
    let place = |host| Vertex(host / LEAF_HOSTS * (LEAF_HOSTS + 1) + host % LEAF_HOSTS);
    (preset::read(&text).unwrap(), (0..hosts).map(place).collect())
}

/// Every way to carry an allreduce, and its simulated time in microseconds, the fastest first.
fn simulate(network: Network, hosts: u32, len_bytes: usize) -> Vec<(String, f64)> {
    let (preset, places) = system(network, hosts);
    let mut ways = Vec::new();
    for algorithm in algorithms(hosts, len_bytes) {
        let mut run = HostRun::set_up(&preset, &places, algorithm, None).unwrap();
        let samples = run.allreduce(len_bytes, 1).unwrap();
        ways.push((algorithm.to_string(), samples.summary().avg));
    }
    if len_bytes as u64 <= GROUP_BYTES_MAX {
        for radices in Plan::divisions(hosts, GROUP_MEMBERS_MAX) {
            let plan = Plan::even(hosts, radices).unwrap();
            let algorithm = Algorithm::MixedRadix { radices };
            let run = HostRun::set_up_groups(&preset, &places, &Arc::new(plan), false, None);
            let samples = run.unwrap().allreduce(len_bytes, 1).unwrap();
            ways.push((by_groups(&algorithm.to_string()), samples.summary().avg));
        }
    }
    if len_bytes <= GATHERED_MAX_BYTES || hosts <= LEAF_HOSTS {
        let tree = TreeBenchmark { hosts: places, osos: 8, ..TreeBenchmark::of_first(hosts) };
        let samples = tree.set_up(&preset).unwrap().allreduce(len_bytes, 1).unwrap();
        ways.push(("tree".to_owned(), samples.summary().avg));
    }
    ways.sort_by(|one, other| one.1.total_cmp(&other.1));
    ways
}

fn algorithms(hosts: u32, len_bytes: usize) -> Vec<Algorithm> {
    use Algorithm::{Binomial, Linear, Rabenseifner, RecursiveDoubling, Ring};
    let kings = (3..=8).map(|radix| Algorithm::RecursiveKing { radix });
    let levels = Radices::candidates(hosts, 16).map(|radices| Algorithm::MixedRadix { radices });
    let mut algorithms = vec![RecursiveDoubling, Rabenseifner, Binomial];
    // A ring's packets are many: 64 hosts and more are never fast with vectors of less than its parts' packets.
    if hosts <= 64 || len_bytes >= 1 << 20 {
        algorithms.push(Ring);
    }
    if len_bytes <= GATHERED_MAX_BYTES || hosts <= LEAF_HOSTS {
        algorithms.push(Linear);
    }
    if len_bytes <= EXCHANGED_MAX_BYTES || hosts <= LEAF_HOSTS {
        algorithms.extend(kings);
        algorithms.extend(levels);
    }
    algorithms
}

/// A job whose hosts meet in trees that a manager grants, or by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fabric {
    Managed,
    OfTheJob,
}

impl Fabric {
    /// Whether its communicators have this way.
    fn has(self, way: &str) -> bool {
        self == Self::Managed || way != "tree"
    }
}

/// What the library takes by these prices, none for its own: an algorithm's name, behind its carrier if that is not links, or that it
/// is the tree.
fn taken(
    fabric: Fabric,
    network: Network,
    prices: Option<NetworkPrices>,
    hosts: u32,
    len_bytes: usize,
) -> String {
    let set = |name: &str| {
        let names_manager = name == "TRIBUTARY_MANAGER" && fabric == Fabric::Managed;
        names_manager.then(|| "10.0.0.1:7470".to_owned())
    };
    let case = Case {
        collective: CollectiveKind::Allreduce,
        len_bytes: len_bytes as u64,
        hosts,
        ranks_per_host: 1,
        network: Some(network),
        leaves: 1,
        nodes_in_kernel: false,
    };
    let settings = Settings::from_environment(set).unwrap();
    let explanation = explain(&settings, &Tuning { prices, ..Tuning::default() }, case);
    match (explanation.algorithm, explanation.carrier) {
        (None, _) => "tree".to_owned(),
        (Some(algorithm), Some(MessageCarrier::Datagrams)) => by_groups(&algorithm),
        (Some(algorithm), _) => algorithm,
    }
}

/// What is taken in a case by these prices though something faster is there.
fn slower_than_need_be(
    ways: &[(String, f64)],
    slower_max: f64,
    network: Network,
    prices: Option<NetworkPrices>,
    hosts: u32,
    len_bytes: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    for fabric in [Fabric::Managed, Fabric::OfTheJob] {
        let taken = taken(fabric, network, prices, hosts, len_bytes);
        let mut ways = ways.iter().filter(|(way, _)| fabric.has(way));
        let (best, best_us) = ways.clone().next().unwrap();
        let time_us = ways.find(|(way, _)| *way == taken).expect(&taken).1;
        if time_us > slower_max * best_us {
            let name = network.name();
            found.push(format!(
                "{name}, {fabric:?}, {hosts} hosts, {len_bytes} B: {taken} {time_us:.1} us, {best} {best_us:.1} us"
            ));
        }
    }
    found
}

/// Judges all cases; prints those in which something faster was left.
fn judge(slower_max: f64, hosts: &[u32], lengths: &[usize]) {
    let mut failed = Vec::new();
    for &(_, network) in Network::NAMED {
        for &hosts in hosts {
            for &len_bytes in lengths {
                let ways = simulate(network, hosts, len_bytes);
                failed.extend(slower_than_need_be(
                    &ways, slower_max, network, None, hosts, len_bytes,
                ));
            }
        }
    }
    assert!(failed.is_empty(), "slower than need be:\n{}", failed.join("\n"));
}

#[test]
fn nothing_is_taken_that_is_much_slower_than_the_fastest() {
    judge(SLOWER_MAX, &[2, 3, 4, 7, 8, 16, 64], &[8, 1 << 10, 16 << 10, 64 << 10, 256 << 10]);
}

#[test]
fn nor_among_hosts_that_no_number_divides() {
    judge(SLOWER_MAX, &[5, 11, 17, 37], &[8, 1 << 10]);
}

#[test]
#[ignore = "takes minutes; `cargo test --release -p tributary-cli --test choices -- --ignored` runs it"]
fn nor_among_many_hosts_or_with_long_vectors() {
    let hosts = [2, 3, 5, 6, 8, 12, 15, 24, 32, 64, 100, 128, 256, 512, 1024];
    judge(SLOWER_MAX, &hosts, &[8, 256, 4 << 10, 32 << 10, 128 << 10]);
    judge(SLOWER_MAX, &[2, 3, 8, 15, 16, 64, 100, 256], &[1 << 20, 4 << 20, 16 << 20]);
    judge(SLOWER_MAX, &[512, 1024], &[1 << 20]);
}

/// A price that is wrong by a factor of twenty, either way, is found out by some case.
#[test]
fn wrong_prices_are_found_out() {
    type Price = fn(&mut NetworkPrices) -> &mut f64;
    let prices: [(&str, Price); 7] = [
        ("a message sent", |it| &mut it.links.send_ns),
        ("a message received", |it| &mut it.links.receive_ns),
        ("a byte copied", |it| &mut it.links.copy_ns_per_byte),
        ("the network's latency", |it| &mut it.links.wire_ns),
        ("one more datagram", |it| &mut it.datagrams.further_send_ns),
        ("a datagram received", |it| &mut it.datagrams.each_receive_ns),
        ("an aggregator's contribution", |it| &mut it.aggregators.take_ns),
    ];
    let network = Network::Ethernet25;
    // The second length is above what groups carry, and hides no tree.
    let cases =
        [8, 16].into_iter().flat_map(|hosts| [8, 1448, 16 << 10, 256 << 10].map(|it| (hosts, it)));
    let judged: Vec<_> = cases
        .map(|(hosts, len_bytes)| (hosts, len_bytes, simulate(network, hosts, len_bytes)))
        .collect();
    let faults = |prices: NetworkPrices| {
        let of_case = |(hosts, len_bytes, ways): &(u32, usize, Vec<(String, f64)>)| {
            slower_than_need_be(ways, SLOWER_MAX, network, Some(prices), *hosts, *len_bytes)
        };
        judged.iter().flat_map(of_case).collect::<Vec<_>>()
    };
    let right = NetworkPrices::from(network);
    assert_eq!(faults(right), [""; 0]);
    let is_found_out = |price: Price| {
        [0.05, 20.0].into_iter().any(|factor| {
            let mut wrong = right;
            *price(&mut wrong) *= factor;
            !faults(wrong).is_empty()
        })
    };
    let missed: Vec<_> =
        prices.into_iter().filter(|(_, price)| !is_found_out(*price)).map(|it| it.0).collect();
    assert_eq!(missed, [""; 0], "nothing is slower for these wrong prices");
}

/// The judge would see a wrong constant.
#[test]
fn what_a_tree_of_processes_takes_is_found_out() {
    let ways = simulate(Network::Ethernet25, 8, 8);
    let tree = ways.iter().find(|(way, _)| way == "tree").unwrap().1;
    assert!(tree > SLOWER_MAX * ways[0].1, "{ways:?}");
}
