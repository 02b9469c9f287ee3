//! Plans of least predicted time: what any plan keeps to, and what they take, against the walk of all hosts' steps.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_algorithms::network::{DATAGRAMS, Network};
use tributary_algorithms::plan::{HOSTS_MAX, NoPlan, Plan};
use tributary_algorithms::planner::{Folding, Multicast, Planned, Terms, plan};
use tributary_algorithms::prediction::Prices;
use tributary_algorithms::{Algorithm, Carrier, Collective, Division};

/// One crossing of plain Ethernet of 25 Gb/s: 2.0 us each to send, on the way, and to receive; 1.2 us more across a
/// spine.
fn ethernet() -> Terms {
    let prices = Prices {
        wire_ns: 2_000.0,
        link_ns_per_byte: 0.0,
        copy_ns_per_byte: 0.0,
        reduce_ns_per_byte: 0.0,
        ..Network::Ethernet25.prices()
    };
    Terms {
        prices,
        across_ns: 1_200.0,
        datagrams: Some(DATAGRAMS),
        multicast: Multicast::Everywhere,
        hosts_per_core: 1,
    }
}

fn leaves(hosts: u32, each: u32) -> Vec<u32> {
    (0..hosts).map(|host| host / each).collect()
}

fn planned(leaves: &[u32], terms: &Terms, len_bytes: u64) -> Planned {
    plan(leaves, terms, len_bytes).expect("a plan")
}

/// Random leaves, in random order, and random terms.
fn random_case(seed: u64) -> (Vec<u32>, Terms, u64) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let hosts = random.random_range(1..200);
    let leaves_max = random.random_range(1..20);
    let leaves = (0..hosts).map(|_| random.random_range(0..leaves_max)).collect();
    let networks = Network::NAMED;
    let (_, network) = networks[random.random_range(0..networks.len())];
    let multicast = [Multicast::Nowhere, Multicast::WithinLeaves, Multicast::Everywhere];
    let terms = Terms {
        prices: network.prices(),
        across_ns: random.random_range(0.0..3_000.0),
        datagrams: random.random_bool(0.7).then_some(DATAGRAMS),
        multicast: multicast[random.random_range(0..3)],
        hosts_per_core: random.random_range(1..10),
    };
    (leaves, terms, 1 << random.random_range(0..24))
}

#[test]
fn a_plan_serves_each_host_once_and_keeps_leaves_together() {
    for seed in 0..500 {
        let (leaves, terms, len_bytes) = random_case(seed);
        let planned = planned(&leaves, &terms, len_bytes);
        let mut hosts = planned.order.clone();
        hosts.sort_unstable();
        assert!(hosts.into_iter().eq(0..leaves.len() as u32), "seed {seed}");
        let in_order: Vec<u32> = planned.order.iter().map(|host| leaves[*host as usize]).collect();
        let changes = in_order.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let distinct = in_order.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(changes + 1, distinct, "seed {seed}");
        assert_eq!(planned.levels.len(), planned.plan.levels());
        for level in 0..planned.plan.levels() {
            assert!(planned.plan.members_max(level) >= 2, "seed {seed}: an idle level");
        }
        for choice in &planned.levels {
            let may = match (choice.carrier, terms.multicast) {
                (Carrier::Links, _) => true,
                (Carrier::Copies(_), _) => terms.datagrams.is_some(),
                (Carrier::Multicast(_), Multicast::Everywhere) => terms.datagrams.is_some(),
                (Carrier::Multicast(_), Multicast::WithinLeaves) => !choice.is_across,
                (Carrier::Multicast(_), Multicast::Nowhere) => false,
            };
            assert!(may, "seed {seed}: {choice:?} is not offered");
        }
    }
}

/// A level that is said to stay within leaves has no group of hosts of two.
#[test]
fn levels_within_leaves_cross_no_spine() {
    let mut seen = 0;
    for seed in 0..500 {
        let (leaves, terms, len_bytes) = random_case(seed);
        let planned = planned(&leaves, &terms, len_bytes);
        let mut blocks: Vec<std::collections::BTreeSet<u32>> =
            planned.order.iter().map(|host| [leaves[*host as usize]].into()).collect();
        for (level, choice) in planned.levels.iter().enumerate() {
            let mut rest = blocks.as_slice();
            let mut united = Vec::new();
            for size in planned.plan.group_sizes(level) {
                let (group, behind) = rest.split_at(size as usize);
                united.push(group.iter().flatten().copied().collect());
                rest = behind;
            }
            blocks = united;
            if !choice.is_across {
                seen += 1;
                assert!(blocks.iter().all(|block| block.len() == 1), "seed {seed}, level {level}");
            }
        }
    }
    assert!(seen > 100, "{seen} levels within leaves");
}

/// Leaves' numbers are names.
#[test]
fn equal_placement_gives_the_equal_plan() {
    for seed in 0..200 {
        let (leaves, terms, len_bytes) = random_case(seed);
        let renamed: Vec<u32> = leaves.iter().map(|leaf| 1_000_000 - leaf * 7).collect();
        let once = planned(&leaves, &terms, len_bytes);
        assert_eq!(once, planned(&renamed, &terms, len_bytes), "seed {seed}");
    }
}

/// More is offered: nothing gets slower.
#[test]
fn an_offer_makes_no_plan_slower() {
    for seed in 0..200 {
        let (leaves, terms, len_bytes) = random_case(seed);
        let time_ns = |terms: &Terms| planned(&leaves, terms, len_bytes).time_ns;
        let links = time_ns(&Terms { datagrams: None, ..terms });
        let mut last_ns = links;
        for multicast in [Multicast::Nowhere, Multicast::WithinLeaves, Multicast::Everywhere] {
            let offered_ns = time_ns(&Terms { datagrams: Some(DATAGRAMS), multicast, ..terms });
            assert!(offered_ns <= last_ns, "seed {seed}: {offered_ns} after {last_ns}");
            last_ns = offered_ns;
        }
    }
}

/// What levels take where a process sends 8 B by multicast and receives by batches, in us. The levels are given: hosts of
/// a leaf at the first, leaves above. The planner's own levels take no longer.
#[test]
fn replicated_levels_take_what_the_arithmetic_says() {
    let terms = ethernet();
    let table: [(u32, &[u32], f64, f64); 6] = [
        (4, &[4], 8.4, 0.05),
        (8, &[8], 11.6, 0.05),
        (16, &[4, 4], 16.8, 0.05),
        (64, &[8, 8], 24.0, 0.5),
        (256, &[16, 16], 37.0, 0.5),
        (1_024, &[16, 8, 8], 44.0, 0.5),
    ];
    for (hosts, radices, expected_us, rounding_us) in table {
        let mut left = hosts;
        let levels = radices.iter().map(|radix| {
            left /= radix;
            vec![*radix; left as usize]
        });
        let plan = Plan::new(hosts, &levels.collect::<Vec<_>>()).map(Arc::new).expect("a plan");
        let walked_ns = terms.prices.levels_time_ns(
            &plan,
            Division::Whole,
            Carrier::Multicast(DATAGRAMS),
            Collective::Allreduce,
            8,
        );
        // 16 hosts share a switch; above it each level but the first crosses the spine.
        let spines = if hosts > 16 { radices.len() - 1 } else { 0 } as f64;
        let time_us = walked_ns.expect("a time") / 1e3 + spines * terms.across_ns / 1e3;
        assert!((time_us - expected_us).abs() <= rounding_us, "{hosts} hosts: {time_us} us");
        let each = if hosts > 16 { radices[0] } else { hosts };
        let own = planned(&leaves(hosts, each), &terms, 8);
        assert!(own.time_ns <= time_us * 1e3 + 1.0, "{hosts} hosts: {own:?}");
    }
}

/// The planner's sums against the walk of every host's steps, for plans of equal groups.
#[test]
fn sums_of_levels_agree_with_the_walk() {
    for hosts in [2, 3, 4, 8, 16, 27, 32] {
        for len_bytes in [8, 256, 1_024, 4_096, 65_536, 1 << 20] {
            for multicast in [Multicast::Nowhere, Multicast::Everywhere] {
                for datagrams in [None, Some(DATAGRAMS)] {
                    let prices = Network::Ethernet25.prices();
                    let terms = Terms { prices, datagrams, multicast, ..ethernet() };
                    let planned = planned(&leaves(hosts, hosts), &terms, len_bytes);
                    let carrier = planned.levels[0].carrier;
                    let is_alike = planned.levels.iter().all(|level| level.carrier == carrier);
                    if !is_alike {
                        continue;
                    }
                    let Planned { plan, division, time_ns, .. } = planned;
                    let collective = Collective::Allreduce;
                    let walked_ns =
                        prices.levels_time_ns(&plan, division, carrier, collective, len_bytes);
                    let ratio = time_ns / walked_ns.expect("a time");
                    assert!((0.7..1.4).contains(&ratio), "{hosts}, {len_bytes} B: {ratio}");
                }
            }
        }
    }
}

#[test]
fn shared_cores_take_a_converging_level_and_long_vectors_parts() {
    let alone = planned(&leaves(8, 8), &ethernet(), 8);
    assert!(alone.levels.iter().all(|level| level.folding == Folding::Replicated));
    assert_eq!(alone.division, Division::Whole);
    let shared = Terms { hosts_per_core: 8, ..ethernet() };
    let shared = planned(&leaves(8, 8), &shared, 8);
    assert!(shared.levels.iter().any(|level| level.folding == Folding::Converging), "{shared:?}");
    let terms = Terms { prices: Network::Ethernet25.prices(), ..ethernet() };
    assert_eq!(planned(&leaves(16, 8), &terms, 1 << 20).division, Division::Parts);
}

/// Routed leaves have no multicast across: one plan has both carriers.
#[test]
fn copies_go_across_routed_leaves() {
    let terms = Terms { multicast: Multicast::WithinLeaves, ..ethernet() };
    let planned = planned(&leaves(64, 8), &terms, 8);
    let carriers = planned.levels.iter().map(|level| (level.is_across, level.carrier));
    let carriers: Vec<_> = carriers.collect();
    assert!(carriers.contains(&(false, Carrier::Multicast(DATAGRAMS))), "{carriers:?}");
    assert!(carriers.contains(&(true, Carrier::Copies(DATAGRAMS))), "{carriers:?}");
}

/// At today's prices, against the best of recursive doubling and k-ing.
#[test]
fn multicast_beats_the_best_exchange_over_links_from_four_hosts_on() {
    for hosts in [4, 8, 16, 32, 64] {
        let prices = Network::Ethernet25.prices();
        let radices = (2..=8).map(|radix| Algorithm::RecursiveKing { radix });
        let times = radices.filter_map(|it| prices.time_ns(it, Collective::Allreduce, hosts, 8));
        let best_ns = times.fold(f64::INFINITY, f64::min);
        let terms = Terms { prices, across_ns: 0.0, ..ethernet() };
        let own_ns = planned(&leaves(hosts, hosts), &terms, 8).time_ns;
        assert!(best_ns / own_ns >= 1.4, "{hosts} hosts: {best_ns} against {own_ns}");
    }
}

#[test]
fn too_few_and_too_many_hosts_are_refused_and_one_needs_no_level() {
    assert_eq!(plan(&[], &ethernet(), 8), Err(NoPlan::Hosts { hosts: 0 }));
    let hosts = HOSTS_MAX + 1;
    assert_eq!(plan(&leaves(hosts, 16), &ethernet(), 8), Err(NoPlan::Hosts { hosts }));
    assert_eq!(planned(&[3], &ethernet(), 8).time_ns.to_bits(), 0.0_f64.to_bits());
    for each in [1, 16, 33, 4096] {
        assert_eq!(planned(&leaves(HOSTS_MAX, each), &ethernet(), 8).plan.hosts(), HOSTS_MAX);
    }
}
