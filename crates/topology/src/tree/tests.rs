use super::*;
use crate::embedded::two_level;
use crate::fabric::VertexKind;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;

fn nodes(names: &[&str], radix: u16) -> Vec<AggregationNode> {
    names
        .iter()
        .map(|name| AggregationNode {
            name: name.to_string(),
            machine: format!("{name}-machine"),
            radix,
        })
        .collect()
}

/// `child parent`, by name; roots have `-`.
fn edges(tree: &AggregationTree) -> Vec<String> {
    tree.nodes()
        .iter()
        .map(|placed| {
            let parent = placed.parent.map_or("-", |index| tree.node(index).node.name.as_str());
            format!("{} {parent}", placed.node.name)
        })
        .collect()
}

/// Two cores over two aggregation switches over two leaves each, two hosts a leaf.
fn three_levels() -> Fabric {
    let mut fabric = Fabric::new();
    let cores = ["core0", "core1"].map(|name| fabric.add_switch(name).unwrap());
    for pod in 0..2 {
        let middle = fabric.add_switch(&format!("pod{pod}")).unwrap();
        for core in cores {
            fabric.add_link(core, middle).unwrap();
        }
        for edge in 0..2 {
            let leaf = fabric.add_switch(&format!("leaf{pod}{edge}")).unwrap();
            fabric.add_link(middle, leaf).unwrap();
            for host in 0..2 {
                let host = fabric.add_host(&format!("h{pod}{edge}{host}")).unwrap();
                fabric.add_link(leaf, host).unwrap();
            }
        }
    }
    fabric
}

#[test]
fn the_tree_follows_the_fabric_from_its_centre() {
    let all = ["leaf00", "leaf01", "leaf10", "leaf11", "pod0", "pod1", "core0", "core1"];
    let tree = AggregationTree::place(&three_levels(), &nodes(&all, 8)).unwrap();
    // Every switch but a core is on a shortest path; the second core is two hops from the first.
    assert_eq!(
        edges(&tree),
        [
            "core0 -",
            "core1 pod0",
            "leaf00 pod0",
            "leaf01 pod0",
            "leaf10 pod1",
            "leaf11 pod1",
            "pod0 core0",
            "pod1 core0"
        ]
    );
    assert!(tree.notes().is_empty());
    let home = |host: &str| tree.node(tree.home(host).unwrap()).node.name.as_str();
    assert_eq!(
        ["h000", "h111", "h111.cluster", "h001#3"].map(home),
        ["leaf00", "leaf11", "leaf11", "leaf00"]
    );
    assert_eq!(tree.home("elsewhere"), None);
}

#[test]
fn missing_switches_are_bridged() {
    let tree =
        AggregationTree::place(&three_levels(), &nodes(&["leaf00", "leaf11", "core1"], 8)).unwrap();
    assert_eq!(edges(&tree), ["core1 -", "leaf00 core1", "leaf11 core1"]);
    let home = |host: &str| tree.node(tree.home(host).unwrap()).node.name.as_str();
    assert_eq!(["h010", "h011"].map(home), ["core1", "leaf00"], "equally near: shared");
}

#[test]
fn only_leaves_make_a_tree_as_well() {
    let tree = AggregationTree::place(&three_levels(), &nodes(&["leaf00", "leaf01", "leaf10"], 8));
    assert_eq!(edges(&tree.unwrap()), ["leaf00 -", "leaf01 leaf00", "leaf10 leaf00"]);
}

#[test]
fn a_preferred_root_is_the_root_while_it_lives() {
    let mut fabric = three_levels();
    fabric.prefer_root("pod1");
    let tree = AggregationTree::place(&fabric, &nodes(&["core0", "pod0", "pod1"], 8)).unwrap();
    assert_eq!(edges(&tree), ["core0 pod1", "pod0 core0", "pod1 -"]);
    let tree = AggregationTree::place(&fabric, &nodes(&["core0", "pod0"], 8)).unwrap();
    assert_eq!(edges(&tree), ["core0 -", "pod0 core0"]);
}

#[test]
fn a_full_parent_sends_children_to_their_siblings() {
    let fabric = two_level(4, &["a", "b", "c", "d"]).unwrap();
    let all = ["root", "leaf0", "leaf1", "leaf2", "leaf3"];
    let tree = AggregationTree::place(&fabric, &nodes(&all, 2)).unwrap();
    assert_eq!(edges(&tree), ["leaf0 root", "leaf1 root", "leaf2 leaf0", "leaf3 leaf1", "root -"]);
    assert_eq!(
        tree.notes()[0].to_string(),
        "aggregation node `leaf2` is a child of `leaf0`: `root` has radix 2 and no child left"
    );
}

#[test]
fn places_of_hosts_are_taken_last() {
    let fabric = two_level(2, &["a", "b"]).unwrap();
    let all = nodes(&["root", "leaf0", "leaf1"], 1);
    let tree = AggregationTree::place(&fabric, &all).unwrap();
    // `leaf0` takes the root's place, and `leaf1` the one that `leaf0` has, although a host wants it.
    assert_eq!(edges(&tree), ["leaf0 root", "leaf1 leaf0", "root -"]);
}

#[test]
fn an_island_has_a_tree_of_its_own() {
    let mut islands = two_level(1, &["a"]).unwrap();
    let far = islands.add_switch("far").unwrap();
    islands.add_aggregation_node("far-an", far).unwrap();
    let tree = AggregationTree::place(&islands, &nodes(&["root", "leaf0", "far-an"], 4)).unwrap();
    assert_eq!(edges(&tree), ["far-an -", "leaf0 root", "root -"]);
    assert_eq!(tree.roots(), [tree.find("root").unwrap(), tree.find("far-an").unwrap()]);
    assert!(matches!(&tree.notes()[0], PlacementNote::Apart { node, .. } if node == "far-an"));
}

#[test]
fn several_nodes_on_one_switch_share_its_hosts() {
    let mut fabric = two_level(1, &["h0", "h1", "h2", "h3"]).unwrap();
    let leaf = fabric.find("leaf0").unwrap();
    fabric.add_aggregation_node("leaf0-b", leaf).unwrap();
    let tree = AggregationTree::place(&fabric, &nodes(&["root", "leaf0", "leaf0-b"], 4)).unwrap();
    assert_eq!(edges(&tree), ["leaf0 root", "leaf0-b root", "root -"]);
    let home = |host: &str| tree.node(tree.home(host).unwrap()).node.name.as_str();
    assert_eq!(["h0", "h1", "h2", "h3"].map(home), ["leaf0", "leaf0", "leaf0-b", "leaf0-b"]);
}

#[test]
fn a_node_is_found_by_its_machine_too() {
    let fabric = two_level(1, &["m1"]).unwrap();
    let an = AggregationNode { name: "an".into(), machine: "m1.cluster".into(), radix: 4 };
    let tree = AggregationTree::place(&fabric, &[an]).unwrap();
    assert_eq!(tree.nodes()[0].at, fabric.find("m1"));
}

#[test]
fn without_a_fabric_nodes_fill_the_tree_by_name() {
    let all = ["e", "d", "c", "b", "a"];
    let tree = AggregationTree::place(&Fabric::new(), &nodes(&all, 2)).unwrap();
    assert_eq!(edges(&tree), ["a -", "b a", "c a", "d b", "e b"]);
    assert!(tree.notes().is_empty(), "without a topology nothing is out of place");
    let tree = AggregationTree::place(&Fabric::new(), &nodes(&all, 1)).unwrap();
    assert_eq!(edges(&tree), ["a -", "b a", "c b", "d c", "e d"]);
}

#[test]
fn a_node_the_fabric_does_not_know_is_noted() {
    let fabric = two_level(1, &["h"]).unwrap();
    let tree = AggregationTree::place(&fabric, &nodes(&["root", "leaf0", "stray"], 4)).unwrap();
    assert_eq!(edges(&tree), ["leaf0 root", "root -", "stray root"]);
    assert_eq!(tree.notes(), [PlacementNote::NotInFabric { node: "stray".into() }]);
}

#[test]
fn contradictions_are_refused() {
    let place = |nodes: &[AggregationNode]| AggregationTree::place(&Fabric::new(), nodes);
    assert_eq!(place(&nodes(&["a", "b", "a"], 1)), Err(PlacementError::NameTwice("a".into())));
    assert_eq!(place(&nodes(&["a"], 0)), Err(PlacementError::RadixZero("a".into())));
    assert_eq!(place(&[]), Ok(AggregationTree::default()));
}

/// A connected or unconnected fabric, and nodes on some of its vertices.
fn any_site() -> impl Strategy<Value = (Fabric, Vec<AggregationNode>)> {
    let shape = (
        prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<prop::sample::Index>(), 0..3)),
            1..24,
        ),
        prop::collection::vec((any::<prop::sample::Index>(), 1_u16..5), 1..12),
        0_usize..3,
    );
    shape.prop_map(|(vertices, placed, strays)| {
        let mut fabric = Fabric::new();
        let mut switches = Vec::new();
        for (index, (host, links)) in vertices.iter().enumerate() {
            let name = format!("v{index}");
            let id = if *host && !switches.is_empty() {
                fabric.add_host(&name).unwrap()
            } else {
                fabric.add_switch(&name).unwrap()
            };
            for link in links.iter().filter(|_| !switches.is_empty()) {
                fabric.add_link(id, switches[link.index(switches.len())]).unwrap();
            }
            if fabric.vertex(id).kind == VertexKind::Switch {
                switches.push(id);
            }
        }
        let mut nodes: Vec<AggregationNode> = Vec::new();
        for (index, (at, radix)) in placed.iter().enumerate() {
            let name = format!("an{index}");
            let at = fabric.find(&format!("v{}", at.index(vertices.len()))).unwrap();
            if index >= strays {
                fabric.add_aggregation_node(&name, at).unwrap();
            }
            nodes.push(AggregationNode { name, machine: "nowhere".into(), radix: *radix });
        }
        (fabric, nodes)
    })
}

proptest! {
    #[test]
    fn any_placement_is_a_forest_within_its_radixes(
        (fabric, mut nodes) in any_site(),
    ) {
        let tree = AggregationTree::place(&fabric, &nodes).unwrap();
        let mut seen = BTreeSet::new();
        for &root in tree.roots() {
            prop_assert_eq!(tree.node(root).parent, None);
            for index in tree.at_or_below(root) {
                prop_assert!(seen.insert(index), "a node is reached once");
            }
        }
        prop_assert_eq!(seen.len(), nodes.len());
        for (index, placed) in tree.nodes().iter().enumerate() {
            prop_assert!(placed.children.len() <= usize::from(placed.node.radix));
            for child in &placed.children {
                prop_assert_eq!(tree.node(*child).parent, Some(NodeIndex(index)));
            }
        }
        nodes.reverse();
        prop_assert_eq!(AggregationTree::place(&fabric, &nodes).unwrap(), tree);
    }

    #[test]
    fn every_host_is_served_by_a_nearest_node(
        (fabric, nodes) in any_site(),
    ) {
        let tree = AggregationTree::place(&fabric, &nodes).unwrap();
        for (host, vertex) in fabric.vertices().filter(|(_, vertex)| vertex.kind == VertexKind::Host) {
            let hops = crate::distance::hops_from(&fabric, host);
            let far = |placed: &PlacedNode| placed.at.map_or(u32::MAX, |at| hops[at.index()]);
            let nearest = tree.nodes().iter().map(far).min().unwrap();
            match tree.home(&vertex.name) {
                Some(home) => prop_assert_eq!(far(tree.node(home)), nearest),
                None => prop_assert_eq!(nearest, u32::MAX),
            }
        }
    }
}
