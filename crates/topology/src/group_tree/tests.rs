use super::*;
use crate::embedded::two_level;
use crate::fabric::Fabric;
use crate::tree::AggregationNode;
use alloc::collections::BTreeSet;
use alloc::format;
use proptest::prelude::*;

fn node(name: &str, radix: u16) -> AggregationNode {
    AggregationNode { name: name.into(), machine: format!("{name}-machine"), radix }
}

/// `root` and leaves of that radix over hosts `h0`, `h1`, ….
fn two_levels(leaves: u16, hosts: usize, radix: u16) -> AggregationTree {
    let hosts: Vec<String> = (0..hosts).map(|index| format!("h{index}")).collect();
    let fabric = two_level(leaves, &hosts).unwrap();
    let mut nodes = Vec::from([node("root", radix)]);
    nodes.extend((0..leaves).map(|leaf| node(&format!("leaf{leaf}"), radix)));
    AggregationTree::place(&fabric, &nodes).unwrap()
}

fn names(group: &GroupTree) -> Vec<&str> {
    group.nodes().iter().map(|part| part.name.as_str()).collect()
}

fn numbers(group: &GroupTree) -> Vec<u32> {
    group.endpoints().iter().map(|place| place.endpoint.0).collect()
}

#[test]
fn a_request_in_tree_order_keeps_its_order() {
    let group = GroupTree::build(&two_levels(2, 4, 8), &["h0", "h1", "h2", "h3"]).unwrap();
    assert_eq!(names(&group), ["root", "leaf0", "leaf1"]);
    assert_eq!(numbers(&group), [0, 1, 2, 3]);
    assert_eq!(group.nodes()[2].members, 2..4);
    assert_eq!(group.nodes()[2].parent, Some(ParentPlace { node: 0, child: ChildIndex(1) }));
}

#[test]
fn a_request_across_the_tree_is_numbered_depth_first() {
    let group = GroupTree::build(&two_levels(2, 4, 8), &["h3", "h0", "h2", "h1"]).unwrap();
    assert_eq!(names(&group), ["root", "leaf1", "leaf0"], "by first endpoint of the request");
    assert_eq!(numbers(&group), [0, 2, 1, 3]);
}

#[test]
fn hosts_of_one_leaf_need_that_leaf_only() {
    let tree = two_levels(3, 6, 8);
    for hosts in [&["h2"][..], &["h2", "h3"], &["h3", "h3", "h2"]] {
        let group = GroupTree::build(&tree, hosts).unwrap();
        assert_eq!(names(&group), ["leaf1"]);
        assert_eq!(group.nodes()[0].parent, None);
        assert_eq!(numbers(&group), (0..hosts.len() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn hosts_on_inner_nodes_stand_among_their_nodes_children() {
    let mut fabric = two_level(1, &["low"]).unwrap();
    let high = fabric.add_host("high").unwrap();
    fabric.add_link(fabric.find("root").unwrap(), high).unwrap();
    let nodes = [node("root", 4), node("leaf0", 4)];
    let tree = AggregationTree::place(&fabric, &nodes).unwrap();
    let group = GroupTree::build(&tree, &["high", "low", "high"]).unwrap();
    let [root, leaf] = group.nodes() else { panic!("two nodes take part") };
    let endpoint = |number, request| GroupChild::Endpoint { endpoint: EndpointId(number), request };
    assert_eq!(root.children, [endpoint(0, 0), GroupChild::Node(1), endpoint(2, 2)]);
    assert_eq!(leaf.children, [endpoint(1, 1)]);
    assert_eq!((root.members.clone(), leaf.members.clone()), (0..3, 1..2));
}

#[test]
fn nodes_with_a_single_child_are_kept() {
    let nodes = [node("a", 1), node("b", 1), node("c", 4), node("d", 4)];
    let tree = AggregationTree::place(&Fabric::new(), &nodes).unwrap();
    let group = GroupTree::build(&tree, &["d-machine", "a-machine"]);
    let exceeded = GroupTreeError::RadixExceeded { node: "a".into(), needs: 2, has: 1 };
    assert_eq!(group, Err(exceeded));
    let nodes = [node("a", 2), node("b", 1), node("c", 1), node("d", 4), node("e", 4)];
    let tree = AggregationTree::place(&Fabric::new(), &nodes).unwrap();
    let group = GroupTree::build(&tree, &["d-machine", "e-machine"]).unwrap();
    assert_eq!(names(&group), ["a", "b", "c", "d", "e"]);
}

#[test]
fn unknown_hosts_go_to_their_machine_or_are_dealt_out() {
    let nodes = [node("a", 4), node("b", 2), node("c", 2)];
    let tree = AggregationTree::place(&Fabric::new(), &nodes).unwrap();
    let home = |hosts: &[&str], at: usize| {
        let group = GroupTree::build(&tree, hosts).unwrap();
        group.nodes()[group.endpoints()[at].node].name.clone()
    };
    assert_eq!(home(&["c-machine#1"], 0), "c");
    assert_eq!(home(&["a-machine"], 0), "a", "an inner node serves its own machine");
    let four = ["w", "x", "y", "z"];
    assert_eq!([0, 1, 2, 3].map(|at| home(&four, at)), ["b", "b", "c", "c"]);
    // `b` has no place for `v` behind two endpoints on `u`.
    assert_eq!([0, 2].map(|at| home(&["u", "u", "v"], at)), ["b", "c"]);
    assert_eq!(
        GroupTree::build(&tree, &["v", "w", "x", "y", "z"]),
        Err(GroupTreeError::RadixExceeded { node: "c".into(), needs: 3, has: 2 })
    );
}

#[test]
fn groups_that_no_tree_joins_are_refused() {
    let mut fabric = two_level(1, &["near"]).unwrap();
    let island = fabric.add_switch("island").unwrap();
    let far = fabric.add_host("far").unwrap();
    fabric.add_link(island, far).unwrap();
    let nodes = [node("root", 4), node("leaf0", 4), node("island", 4)];
    let tree = AggregationTree::place(&fabric, &nodes).unwrap();
    assert_eq!(
        GroupTree::build(&tree, &["near", "far"]),
        Err(GroupTreeError::Apart {
            one: "near".into(),
            one_node: "leaf0".into(),
            other: "far".into(),
            other_node: "island".into()
        })
    );
    assert_eq!(names(&GroupTree::build(&tree, &["far"]).unwrap()), ["island"]);
    assert_eq!(GroupTree::build::<&str>(&tree, &[]), Err(GroupTreeError::NoEndpoints));
    let none = AggregationTree::default();
    assert_eq!(GroupTree::build(&none, &["far"]), Err(GroupTreeError::NoAggregationNode));
}

/// Checks everything a group tree promises.
fn check(tree: &AggregationTree, hosts: &[String], group: &GroupTree) {
    let nodes = group.nodes();
    assert_eq!(nodes[0].members, 0..u32::try_from(hosts.len()).unwrap());
    assert!(nodes.iter().map(|part| part.level).is_sorted());
    let mut met = BTreeSet::new();
    for (at, part) in nodes.iter().enumerate() {
        let placed = tree.node(tree.find(&part.name).unwrap());
        assert!(!part.children.is_empty(), "no node without a member is kept");
        assert!(part.children.len() <= usize::from(placed.node.radix));
        let mut next = part.members.start;
        for (index, child) in part.children.iter().enumerate() {
            let child_at = child_index(index);
            match *child {
                GroupChild::Endpoint { endpoint, request } => {
                    assert!(met.insert(endpoint), "an endpoint is met once");
                    assert_eq!(endpoint.0, next);
                    let place = EndpointPlace { endpoint, node: at, child: child_at };
                    assert_eq!(group.endpoints()[request], place);
                    if let Some(home) = tree.home(&hosts[request]) {
                        assert_eq!(tree.node(home).node.name, part.name);
                    }
                    next += 1;
                }
                GroupChild::Node(below) => {
                    let below = &nodes[below];
                    assert_eq!(below.parent, Some(ParentPlace { node: at, child: child_at }));
                    assert_eq!((below.members.start, below.level), (next, part.level + 1));
                    let above = tree.node(tree.find(&below.name).unwrap()).parent.unwrap();
                    assert_eq!(tree.node(above).node.name, part.name);
                    next = below.members.end;
                }
            }
        }
        assert_eq!(next, part.members.end, "children cover their node without a gap");
    }
    assert_eq!(met.len(), hosts.len());
    let branches =
        nodes[0].children.len() > 1 || matches!(nodes[0].children[0], GroupChild::Endpoint { .. });
    assert!(branches, "the root is the lowest node above all");
}

/// Nodes in a random tree of switches, any depth and number of children, hosts anywhere.
fn any_tree() -> impl Strategy<Value = (Fabric, Vec<AggregationNode>, Vec<String>)> {
    let parents = prop::collection::vec(any::<prop::sample::Index>(), 0..14);
    let homes = prop::collection::vec(any::<prop::sample::Index>(), 1..20);
    let request = prop::collection::vec(0_usize..24, 1..40);
    (parents, homes, request, 1_u16..40).prop_map(|(parents, homes, request, radix)| {
        let mut fabric = Fabric::new();
        let mut switches = Vec::from([fabric.add_switch("s0").unwrap()]);
        for (index, parent) in parents.iter().enumerate() {
            let id = fabric.add_switch(&format!("s{}", index + 1)).unwrap();
            fabric.add_link(id, switches[parent.index(switches.len())]).unwrap();
            switches.push(id);
        }
        for (index, home) in homes.iter().enumerate() {
            let host = fabric.add_host(&format!("h{index}")).unwrap();
            fabric.add_link(host, switches[home.index(switches.len())]).unwrap();
        }
        let nodes = (0..switches.len()).map(|index| node(&format!("s{index}"), radix)).collect();
        // Some hosts of the request are not in the fabric.
        let hosts = request.iter().map(|host| format!("h{host}")).collect();
        (fabric, nodes, hosts)
    })
}

proptest! {
    #[test]
    fn any_group_is_contiguous_complete_and_repeatable((fabric, nodes, hosts) in any_tree()) {
        let tree = AggregationTree::place(&fabric, &nodes).unwrap();
        let group = GroupTree::build(&tree, &hosts);
        prop_assert_eq!(&group, &GroupTree::build(&tree, &hosts));
        match group {
            Ok(group) => check(&tree, &hosts, &group),
            Err(GroupTreeError::RadixExceeded { needs, has, .. }) => {
                prop_assert!(needs > usize::from(has));
            }
            Err(GroupTreeError::Apart { one_node, other_node, .. }) => {
                let root = |name: &str| tree.path_from_root(tree.find(name).unwrap())[0];
                prop_assert_ne!(root(&one_node), root(&other_node));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
