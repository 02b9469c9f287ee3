//! Which method a communicator opens, and which path its operations take.

use tributary_algorithms::Radices;
use tributary_algorithms::network::Network;
use tributary_tuning::{AlgorithmChoice, Measurement, MessageCarrier, Tuning};

use super::decision::Hosts;
use super::*;
use tributary_settings::Settings;

const MANAGER: (&str, &str) = ("TRIBUTARY_MANAGER", "10.0.0.1:7470");

fn settings(set: &[(&str, &str)]) -> Settings {
    let value = |name: &str| {
        let found = set.iter().find(|(set, _)| *set == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::from_environment(value).unwrap()
}

fn decision(hosts: usize, set: &[(&str, &str)]) -> Decision {
    let hosts: Vec<_> = (0..hosts).map(|host| format!("h{host}@{host}")).collect();
    let hosts = Hosts::from_names(&hosts, 8, Network::Ethernet25, 2);
    Decision::new(&settings(set), &Tuning::default(), &hosts)
}

/// The decision for hosts that share a kernel.
fn decision_in_a_lab(hosts: u32, set: &[(&str, &str)]) -> Decision {
    let hosts =
        Hosts { leaves: Leaves::unknown(hosts), network: None, ranks: 8, have_datagrams: true };
    Decision::new(&settings(set), &Tuning::default(), &hosts)
}

/// Hosts with a rank each, a tree and direct links.
fn opened(hosts: u32) -> Opened {
    Opened {
        tree: true,
        in_kernel: false,
        group_algorithm: None,
        direct_leaders: 1,
        leaves: Leaves::unknown(hosts),
        ranks: hosts,
        is_in_host_order: true,
    }
}

fn selection(rules: &[Measurement], set: &[(&str, &str)], tree: bool, leaders: u32) -> Selection {
    let tuning = Tuning { measurements: rules.to_vec(), ..Tuning::default() };
    let hosts = Hosts {
        leaves: Leaves::unknown(2),
        network: Some(Network::Ethernet25),
        ranks: 8,
        have_datagrams: true,
    };
    let decision = Decision::new(&settings(set), &tuning, &hosts);
    let opened = Opened { tree, direct_leaders: leaders, ranks: 8, ..opened(2) };
    Selection::between_hosts(decision, &opened)
}

fn rule(len_bytes: u64, method: Method, leaders: u32) -> Measurement {
    Measurement {
        collective: CollectiveKind::Allreduce,
        hosts: 2,
        ranks: 8,
        len_bytes,
        method,
        carrier: MessageCarrier::Links,
        algorithm: AlgorithmChoice::Ring,
        groups: None,
        leaders,
        sub_partitions: 1,
        time_us: 1.0,
        quartiles_us: None,
    }
}

/// A sum of floating-point numbers.
fn allreduce(elements: u64) -> Question {
    Question {
        kind: CollectiveKind::Allreduce,
        elements,
        len_bytes: 4 * elements,
        is_exact: false,
        has_own_operator: false,
    }
}

fn barrier() -> Question {
    Question { kind: CollectiveKind::Barrier, is_exact: true, ..allreduce(0) }
}

fn ring(leaders: u32) -> Path {
    Path::Direct(DirectPath { algorithm: Algorithm::Ring, leaders, sub_partitions: 1 })
}

#[test]
fn hosts_of_one_kernel_are_told_from_hosts_of_a_network() {
    let network = |names: &[&str], cores| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Hosts::from_names(&names, 8, Network::Cloud, cores).network
    };
    let of_one_kernel = ["a@12", "b@12#0", "b@12#1"];
    assert_eq!(network(&of_one_kernel, 7), None);
    assert_eq!(network(&of_one_kernel, 8), Some(Network::Bridge), "each rank has a core");
    for others in [&["a@12", "b@13"][..], &["a", "b"], &[]] {
        assert_eq!(network(others, 8), Some(Network::Cloud));
    }
}

#[test]
fn two_real_hosts_are_joined_directly_and_emulated_ones_by_the_tree() {
    let by_manager = ("TRIBUTARY_FABRIC", "manager");
    let opens_tree = |hosts: usize, set: &[(&str, &str)]| decision(hosts, set).opens_tree;
    assert!(!opens_tree(2, &[MANAGER]));
    assert!(opens_tree(3, &[MANAGER]));
    assert!(opens_tree(8, &[MANAGER]));
    assert!(opens_tree(17, &[MANAGER]));
    assert!(opens_tree(2, &[by_manager]));
    assert!(opens_tree(2, &[MANAGER, ("TRIBUTARY_HOSTS", "2")]));
    assert!(opens_tree(2, &[MANAGER, ("TRIBUTARY_BETWEEN_HOSTS", "tree")]));
    assert!(!opens_tree(9, &[("TRIBUTARY_BETWEEN_HOSTS", "direct")]));
}

#[test]
fn long_vectors_of_a_lab_go_as_was_measured_unless_the_tree_is_needed() {
    let long_goes = |set: &[(&str, &str)]| {
        let decision = decision_in_a_lab(8, set);
        let long = decision.table.rule(CollectiveKind::Allreduce, u64::MAX);
        (decision.opens_tree, decision.opens_direct, long.map(|rule| rule.method))
    };
    let tree_alone = (true, false, None);
    assert_eq!(long_goes(&[MANAGER]), (true, true, Some(Method::Direct)));
    assert_eq!(long_goes(&[("TRIBUTARY_FABRIC", "manager")]), tree_alone);
    assert_eq!(long_goes(&[MANAGER, ("TRIBUTARY_HOSTS", "8")]), tree_alone);
    assert_eq!(long_goes(&[MANAGER, ("TRIBUTARY_STREAM_MIN", "65536")]), tree_alone);
    assert_eq!(long_goes(&[MANAGER, ("TRIBUTARY_BETWEEN_HOSTS", "tree")]), tree_alone);
}

#[test]
fn without_a_manager_hosts_are_joined_directly_whatever_they_are() {
    let opens = |decision: Decision| (decision.opens_tree, decision.opens_direct);
    for set in [&[][..], &[("TRIBUTARY_HOSTS", "4")], &[("TRIBUTARY_AVOID_LOSSES", "all")]] {
        assert_eq!([2, 3, 17].map(|hosts| opens(decision(hosts, set))), [(false, true); 3]);
        assert_eq!(
            [2, 3, 17].map(|hosts| opens(decision_in_a_lab(hosts, set))),
            [(false, true); 3]
        );
    }
    // The tree is what was asked for here.
    for set in [("TRIBUTARY_BETWEEN_HOSTS", "tree"), ("TRIBUTARY_STREAM_MIN", "65536")] {
        assert_eq!(opens(decision(8, &[set])), (true, false));
    }
    let without_tree = Opened { tree: false, ..opened(16) };
    let path = Selection::between_hosts(decision(16, &[]), &without_tree).path(&allreduce(2));
    assert_eq!(path.method(), Some(Method::Direct));
}

#[test]
fn without_a_tree_every_length_has_the_fastest_direct_algorithm_of_its_own() {
    let decision = decision_in_a_lab(8, &[MANAGER]);
    assert!(!decision.direct_table.takes(Method::Tree));
    let shortest = decision.direct_table.rule(CollectiveKind::Allreduce, 8);
    assert!(shortest.is_some_and(|rule| rule.len_bytes <= 8));
}

#[test]
fn levels_divide_hosts_leaf_by_leaf() {
    let radices = |leaves: Leaves| {
        let network = Some(Network::Ethernet25);
        let ranks = leaves.hosts();
        let hosts = Hosts { leaves, network, ranks, have_datagrams: true };
        let decision = Decision::new(&settings(&[MANAGER]), &Tuning::default(), &hosts);
        decision.group_radices().map(|radices| radices.to_string())
    };
    let dealt = |hosts: u32, leaves: u32| (0..hosts).map(|host| host % leaves).collect::<Vec<_>>();
    let known = |hosts, leaves| radices(Leaves::new(&dealt(hosts, leaves)));
    for (hosts, leaves, unknown, expected) in [
        // Groups of four lie within leaves of eight.
        (16, 2, "4x4", "4x4"),
        // One of them would have hosts of both leaves of seven, and cross at both levels.
        (14, 2, "4x4", "7x2"),
        (32, 8, "8x4", "4x8"),
        // Leaves of six, five and five.
        (16, 3, "4x4", "6x3"),
    ] {
        assert_eq!(radices(Leaves::unknown(hosts)).as_deref(), Some(unknown));
        assert_eq!(
            known(hosts, leaves).as_deref(),
            Some(expected),
            "{hosts} hosts, {leaves} leaves"
        );
    }
}

fn four_by_four() -> Algorithm {
    Algorithm::MixedRadix { radices: Radices::new(&[4, 4]).unwrap() }
}

#[test]
fn on_a_network_the_model_decides_and_names_the_radices() {
    let opened = opened(16);
    let path = |set: &[(&str, &str)], elements| {
        let names: Vec<_> = (0..16).map(|host| format!("h{host}@{host}")).collect();
        let hosts = Hosts::from_names(&names, 16, Network::Cloud, 2);
        let decision = Decision::new(&settings(set), &Tuning::default(), &hosts);
        Selection::between_hosts(decision, &opened).path(&allreduce(elements))
    };
    let direct = |algorithm| Path::Direct(DirectPath { algorithm, leaders: 1, sub_partitions: 1 });
    assert_eq!(path(&[MANAGER], 2), direct(four_by_four()));
    let named = ("TRIBUTARY_DIRECT_ALGORITHM", "ring");
    assert_eq!(path(&[MANAGER, named], 2), direct(Algorithm::Ring));
    // Where a manager alone may join hosts and none is named, what would hold with one is the tree.
    assert_eq!(path(&[("TRIBUTARY_FABRIC", "manager")], 2), Path::Tree);
    assert_eq!(path(&[MANAGER, ("TRIBUTARY_BETWEEN_HOSTS", "tree")], 2), Path::Tree);
}

/// The decision for 8 hosts of a network and the path of an allreduce there, where datagrams come through and a manager that is
/// named grants a tree.
fn goes_on_8(set: &[(&str, &str)], tuning: &Tuning, elements: u64) -> (bool, Path) {
    let hosts = Hosts {
        leaves: Leaves::unknown(8),
        network: Some(Network::Ethernet25),
        ranks: 8,
        have_datagrams: true,
    };
    let decision = Decision::new(&settings(set), tuning, &hosts);
    let group_algorithm = decision.group_radices().map(|radices| Algorithm::MixedRadix { radices });
    let opened = Opened {
        tree: decision.opens_tree && set.contains(&MANAGER),
        group_algorithm,
        ..opened(8)
    };
    let mut selection = Selection::between_hosts(decision, &opened);
    (group_algorithm.is_some(), selection.path(&allreduce(elements)))
}

#[test]
fn replicated_groups_carry_short_operations_on_a_network() {
    let none = Tuning::default();
    let one_level = Algorithm::MixedRadix { radices: Radices::new(&[8]).unwrap() };
    let by_groups =
        Path::Direct(DirectPath { algorithm: one_level, leaders: 1, sub_partitions: 1 });
    for set in [&[][..], &[MANAGER]] {
        assert_eq!(goes_on_8(set, &none, 2), (true, by_groups));
        let (_, longer) = goes_on_8(set, &none, 1024);
        assert_ne!(longer, by_groups);
    }
    for (knob, value) in [
        ("TRIBUTARY_BETWEEN_HOSTS", "direct"),
        ("TRIBUTARY_DIRECT_ALGORITHM", "ring"),
        ("TRIBUTARY_LEADERS", "2"),
    ] {
        let (has_groups, path) = goes_on_8(&[(knob, value)], &none, 2);
        assert!(!has_groups && path != by_groups, "{knob}={value}");
    }
    let names: Vec<_> = (0..8).map(|host| format!("h{host}@1")).collect();
    let of_one_kernel = Hosts::from_names(&names, 8, Network::Ethernet25, 7);
    assert!(Decision::new(&settings(&[]), &none, &of_one_kernel).group_radices().is_none());
    let hosts = Hosts { network: Some(Network::Ethernet25), ..of_one_kernel };
    let blocked = Hosts { have_datagrams: false, ..hosts.clone() };
    assert!(Decision::new(&settings(&[]), &none, &hosts).group_radices().is_some());
    assert!(Decision::new(&settings(&[]), &none, &blocked).group_radices().is_none());
}

#[test]
fn what_was_measured_takes_groups_or_leaves_them() {
    let row =
        |carrier, time_us| Measurement { hosts: 8, carrier, time_us, ..rule(8, Method::Direct, 1) };
    let taken = |links_us, datagrams_us| {
        let measurements = vec![
            row(MessageCarrier::Links, links_us),
            row(MessageCarrier::Datagrams, datagrams_us),
        ];
        goes_on_8(&[], &Tuning { measurements, ..Tuning::default() }, 2)
    };
    let (has_groups, path) = taken(10.0, 20.0);
    assert_eq!((has_groups, path), (false, ring(1)));
    let (has_groups, path) = taken(20.0, 10.0);
    assert!(has_groups && path != ring(1));
    // Beside a tree, which carries what is longer.
    let in_tree = Measurement { hosts: 8, ..rule(1024, Method::Tree, 1) };
    let measurements = vec![row(MessageCarrier::Datagrams, 10.0), in_tree];
    let tuning = Tuning { measurements, ..Tuning::default() };
    assert!(matches!(goes_on_8(&[MANAGER], &tuning, 2), (true, Path::Direct(_))));
    assert_eq!(goes_on_8(&[MANAGER], &tuning, 256), (true, Path::Tree));
    // What was measured among 8 hosts and no prices holds for any number; with prices the model decides for others.
    let far = |prices| {
        let measurements =
            vec![Measurement { hosts: 64, ranks: 64, ..row(MessageCarrier::Links, 10.0) }];
        goes_on_8(&[], &Tuning { measurements, prices, ..Tuning::default() }, 2)
    };
    assert_eq!(far(None), (false, ring(1)));
    assert!(far(Some(Network::Cloud.into())).0);
}

#[test]
fn levels_are_those_that_are_named_else_those_that_were_measured_to_be_the_fastest() {
    let levels = |text: &str| text.parse::<Radices>().ok();
    let by = |text: &str| {
        let algorithm = Algorithm::MixedRadix { radices: levels(text).unwrap() };
        Path::Direct(DirectPath { algorithm, leaders: 1, sub_partitions: 1 })
    };
    let named = |text| goes_on_8(&[("TRIBUTARY_GROUPS", text)], &Tuning::default(), 2).1;
    assert_eq!([named("4x2"), named("8")], [by("4x2"), by("8")]);
    assert_eq!(named("4x4"), by("8"), "this communicator has 8 hosts");
    let row = |groups: &str, len_bytes, time_us| Measurement {
        hosts: 8,
        carrier: MessageCarrier::Datagrams,
        groups: levels(groups),
        time_us,
        ..rule(len_bytes, Method::Direct, 1)
    };
    let links = Measurement { hosts: 8, time_us: 10.0, ..rule(8, Method::Direct, 1) };
    let measured = |rows: Vec<Measurement>, set: &[(&str, &str)]| {
        goes_on_8(set, &Tuning { measurements: rows, ..Tuning::default() }, 2).1
    };
    let rows = vec![links, row("8", 8, 9.0), row("4x2", 8, 8.0), row("8", 1024, 1.0)];
    assert_eq!(measured(rows.clone(), &[]), by("4x2"));
    // Groups of 8 are named, and faster than links, though others would be faster still.
    assert_eq!(measured(rows, &[("TRIBUTARY_GROUPS", "8")]), by("8"));
    // Those are slower than links, whatever others took.
    let rows = vec![links, row("8", 8, 11.0), row("4x2", 8, 8.0)];
    assert_eq!(measured(rows, &[("TRIBUTARY_GROUPS", "8")]), ring(1));
    // Nobody measured those, so others stand for them.
    let rows = vec![links, row("4x2", 8, 8.0)];
    assert_eq!(measured(rows, &[("TRIBUTARY_GROUPS", "2x2x2")]), by("2x2x2"));
}

/// The bridge of one kernel copies a multicast on its sender's core.
#[test]
fn groups_multicast_on_networks_unless_the_user_says_otherwise() {
    let multicasts = |network, set: &[(&str, &str)]| {
        let hosts = Hosts { leaves: Leaves::unknown(8), network, ranks: 8, have_datagrams: true };
        Decision::new(&settings(set), &Tuning::default(), &hosts).multicasts
    };
    let networks = [None, Some(Network::Bridge), Some(Network::Ethernet25), Some(Network::Cloud)];
    assert_eq!(networks.map(|it| multicasts(it, &[])), [false, false, true, true]);
    for (set, expected) in [("on", true), ("off", false)] {
        let all = networks.map(|it| multicasts(it, &[("TRIBUTARY_MULTICAST", set)]));
        assert_eq!(all, [expected; 4]);
    }
}

#[test]
fn constants_that_were_measured_overrule_the_prices_of_a_kind_of_network() {
    let costs = tributary_tuning::CostsRow {
        network_startup_ns: 15_000.0,
        network_ns_per_byte: 0.8,
        memory_startup_ns: 200.0,
        memory_ns_per_byte: 0.08,
        reduce_ns_per_byte: 0.1,
    };
    let algorithm = |costs| {
        let tuning = Tuning { costs, ..Tuning::default() };
        let hosts = Hosts {
            leaves: Leaves::unknown(16),
            network: Some(Network::Cloud),
            ranks: 16,
            have_datagrams: true,
        };
        let decision = Decision::new(&settings(&[MANAGER]), &tuning, &hosts);
        match Selection::between_hosts(decision, &opened(16)).path(&allreduce(2)) {
            Path::Direct(direct) => direct.algorithm,
            path => panic!("{path:?}"),
        }
    };
    assert_eq!(algorithm(Some(costs)), Algorithm::RecursiveDoubling);
    assert_eq!(algorithm(None), four_by_four());
}

#[test]
fn rules_decide_by_length_and_the_default_method_elsewhere() {
    let rules =
        [rule(8, Method::Direct, 1), rule(4096, Method::Tree, 1), rule(65536, Method::Direct, 4)];
    let mut selection = selection(&rules, &[], true, 8);
    let mut path = |elements| selection.path(&allreduce(elements));
    assert_eq!([path(1), path(100), path(1024)], [ring(1), ring(1), Path::Tree]);
    assert_eq!(path(1 << 14), ring(4));
    assert_eq!(selection.path(&barrier()), Path::Tree);
    let on_one_host = Selection::on_one_host(Limits::default(), false).path(&allreduce(1));
    assert_eq!(on_one_host, Path::SharedMemory);
}

#[test]
fn answers_stay_the_same_whatever_was_asked_before() {
    let rules = [rule(8, Method::Direct, 1), rule(4096, Method::Tree, 1)];
    let mut asked_often = selection(&rules, &[], true, 8);
    // More questions than are remembered, forth and back.
    for elements in [1, 2, 3, 1024, 1025, 1026, 3, 2, 1, 1024, 1] {
        let fresh = selection(&rules, &[], true, 8).path(&allreduce(elements));
        assert_eq!(asked_often.path(&allreduce(elements)), fresh, "{elements} elements");
        assert_eq!(asked_often.path(&allreduce(elements)), fresh, "{elements} elements");
    }
}

#[test]
fn leaders_are_what_the_user_said_as_far_as_there_are_any() {
    let set = [("TRIBUTARY_LEADERS", "4"), ("TRIBUTARY_SUB_PARTITIONS", "8")];
    let mut selection = selection(&[], &set, false, 3);
    let mut design = |question: &Question| match selection.path(question) {
        Path::Direct(direct) => (direct.leaders, direct.sub_partitions),
        path => panic!("{path:?}"),
    };
    assert_eq!([1, 2, 100].map(|elements| design(&allreduce(elements))), [(1, 1), (2, 1), (3, 8)]);
    assert_eq!(design(&barrier()), (1, 1));
}

/// The path of a blocking operation, which runs.
fn choose_and_count(selection: &mut Selection, question: &Question) -> Path {
    let choice = selection.choose(question);
    selection.count(choice);
    choice.path
}

#[test]
fn nodes_inside_the_kernel_get_short_vectors_of_few_hosts() {
    let opened = Opened { in_kernel: true, ..opened(4) };
    let method = |opened: &Opened, set: &[(&str, &str)], elements| {
        let mut selection = Selection::between_hosts(decision(4, set), opened);
        selection.path(&allreduce(elements)).method()
    };
    let (tree, direct) = (Some(Method::Tree), Some(Method::Direct));
    assert_eq!(method(&opened, &[MANAGER], 2), tree);
    assert_eq!(method(&opened, &[MANAGER], 1 << 20), direct);
    assert_eq!(method(&Opened { in_kernel: false, ..opened.clone() }, &[MANAGER], 2), direct);
    assert_eq!(method(&Opened { tree: false, ..opened.clone() }, &[MANAGER], 2), direct);
    let named = ("TRIBUTARY_BETWEEN_HOSTS", "direct");
    assert_eq!(method(&Opened { tree: false, ..opened.clone() }, &[MANAGER, named], 2), direct);
}

#[test]
fn where_packets_are_lost_the_tree_carries_what_links_would() {
    let opened = opened(8);
    let all = ("TRIBUTARY_AVOID_LOSSES", "all");
    let mut selection = Selection::between_hosts(decision_in_a_lab(8, &[MANAGER, all]), &opened);
    let (short, long, longest) = (allreduce(2), allreduce(16 << 10), allreduce(1 << 20));
    let direct = Some(Method::Direct);
    let mut operations = 0;
    while !selection.asks_for_losses() {
        assert_eq!(choose_and_count(&mut selection, &short), Path::Tree);
        assert_eq!(choose_and_count(&mut selection, &long).method(), direct);
        operations += 1;
    }
    assert_eq!(operations, 16, "only those over links count");
    selection.note_losses(1000);
    let choice = selection.choose(&long);
    assert_eq!((choice.path, choice.avoids_losses()), (Path::Tree, true));
    let choice = selection.choose(&short);
    assert_eq!((choice.path, choice.avoids_losses()), (Path::Tree, false));
    assert_eq!(selection.path(&longest).method(), direct);
    let parts = Question { kind: CollectiveKind::Allgather, ..long };
    assert_eq!(selection.path(&parts).method(), direct);
    while selection.expects_losses() {
        choose_and_count(&mut selection, &long);
    }
    assert_eq!(selection.path(&long).method(), direct, "links are tried again");
}

#[test]
fn sums_of_floats_keep_their_order_where_packets_are_lost() {
    let opened = opened(8);
    let mut selection = Selection::between_hosts(decision(8, &[MANAGER]), &opened);
    let floats = allreduce(16 << 10);
    (0..1000).for_each(|_| _ = choose_and_count(&mut selection, &floats));
    assert!(!selection.asks_for_losses(), "a rank that changes nothing asks nothing");
    let integers = Question { is_exact: true, ..floats };
    (0..16).for_each(|_| _ = choose_and_count(&mut selection, &integers));
    assert!(selection.asks_for_losses());
    selection.note_losses(1000);
    assert_eq!(selection.path(&integers), Path::Tree);
    assert_ne!(selection.path(&floats), Path::Tree);
}

#[test]
fn a_path_that_is_named_or_measured_is_kept_where_packets_are_lost() {
    let asks = |selection: &mut Selection| {
        let integers = Question { is_exact: true, ..allreduce(16 << 10) };
        (0..1000).for_each(|_| _ = choose_and_count(selection, &integers));
        selection.asks_for_losses()
    };
    let opened = opened(8);
    let named = decision(8, &[MANAGER, ("TRIBUTARY_BETWEEN_HOSTS", "direct")]);
    assert!(!asks(&mut Selection::between_hosts(named, &Opened { tree: false, ..opened.clone() })));
    assert!(!asks(&mut selection(&[rule(1, Method::Direct, 1)], &[MANAGER], true, 1)));
    let off = decision(8, &[MANAGER, ("TRIBUTARY_AVOID_LOSSES", "off")]);
    assert!(!asks(&mut Selection::between_hosts(off, &opened)));
    assert!(asks(&mut Selection::between_hosts(decision(8, &[MANAGER]), &opened)));
}
