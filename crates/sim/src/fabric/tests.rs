use super::*;

fn assert_routes_are_minimal(wiring: &Wiring, pairs: impl Iterator<Item = (u32, u32)>) {
    for (source, target) in pairs {
        if source == target {
            continue;
        }
        let path = wiring.path(Vertex(source), Vertex(target));
        assert!(path.len() <= 64, "route from {source} to {target} does not end");
        let back = wiring.path(Vertex(target), Vertex(source));
        assert_eq!(path.len(), back.len(), "{source} to {target}: {path:?}, back {back:?}");
        let mut seen = path.clone();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), path.len(), "{path:?} visits a vertex twice");
    }
}

/// A link always has the same two ends, and no other link has them in the same direction.
fn assert_links_are_consistent(wiring: &Wiring) {
    let mut ends = vec![None; wiring.links() as usize];
    for source in 0..wiring.vertices() {
        for target in (0..wiring.vertices()).filter(|&target| target != source) {
            let hop = wiring.next(Vertex(source), Vertex(target));
            let known = ends[hop.link.0 as usize].get_or_insert((source, hop.to));
            assert_eq!(*known, (source, hop.to));
        }
    }
}

#[test]
fn fat_trees_of_two_and_three_levels_route() {
    for tree in [FatTree::new(&[16, 8], &[1, 4]), FatTree::new(&[3, 4, 2], &[1, 2, 3])] {
        let wiring = Wiring::FatTree(tree);
        let hosts = wiring.hosts();
        let pairs = (0..hosts).flat_map(|one| (0..hosts).map(move |other| (one, other)));
        assert_routes_are_minimal(&wiring, pairs);
        assert_links_are_consistent(&wiring);
    }
}

/// Rounds of host algorithms: every host sends at one distance, or to the host with one bit flipped.
#[test]
fn neighbours_that_send_at_one_distance_share_no_link() {
    let wiring = Wiring::FatTree(FatTree::new(&[16, 8], &[1, 16]));
    let partners: [fn(u32, u32) -> u32; 2] =
        [|host, far| (host + far) % 128, |host, far| host ^ far];
    for partner in partners {
        for far in [16, 32, 48, 64] {
            let targets = (0..128).map(|host| (Vertex(host), Vertex(partner(host, far))));
            let mut links: Vec<_> = targets
                .flat_map(|(source, target)| {
                    let path = wiring.path(source, target);
                    let hops = path[..path.len() - 1].iter();
                    hops.map(|&at| wiring.next(at, target).link.0).collect::<Vec<_>>()
                })
                .collect();
            let all = links.len();
            links.sort_unstable();
            links.dedup();
            assert_eq!((links.len(), all), (4 * 128, 4 * 128), "at distance {far}");
        }
    }
}

#[test]
fn hosts_of_one_leaf_meet_there_and_others_above() {
    let tree = FatTree::new(&[16, 8], &[1, 4]);
    let leaf = tree.switch_above(Vertex(17), 1);
    let root = tree.switch_above(Vertex(17), 2);
    let wiring = Wiring::FatTree(tree);
    assert_eq!(wiring.path(Vertex(16), Vertex(31)), [Vertex(16), leaf, Vertex(31)]);
    assert_eq!(wiring.path(Vertex(0), Vertex(31)).len(), 5);
    assert_eq!(wiring.path(leaf, root), [leaf, root]);
    assert_eq!(wiring.path(root, Vertex(20)), [root, leaf, Vertex(20)]);
    assert_eq!(wiring.switch_of(Vertex(0)), wiring.switch_of(Vertex(15)));
}

#[test]
fn dragonfly_takes_at_most_one_global_link() {
    let wiring = Wiring::Dragonfly(Dragonfly::new(5, 4, 2));
    let hosts = wiring.hosts();
    let pairs = || (0..hosts).flat_map(|one| (0..hosts).map(move |other| (one, other)));
    assert_routes_are_minimal(&wiring, pairs());
    assert_links_are_consistent(&wiring);
    for (one, other) in pairs().filter(|(one, other)| one != other) {
        assert!(wiring.path(Vertex(one), Vertex(other)).len() <= 6);
    }
}

#[test]
fn torus_routes_in_the_shorter_direction() {
    let wiring = Wiring::Torus(Torus::new(&[5, 4, 3]));
    assert_links_are_consistent(&wiring);
    // One step back in the first dimension: host, router, router, host.
    assert_eq!(wiring.path(Vertex(0), Vertex(4)).len(), 4);
    let far = wiring.path(Vertex(0), Vertex(2 + 2 * 5 + 20));
    assert_eq!(far.len(), 2 + 2 + 2 + 1 + 1);
}

#[test]
fn a_described_fabric_routes_like_the_regular_one() {
    let hosts: Vec<String> = (0..12).map(|host| format!("h{host}")).collect();
    let fabric = tributary_topology::two_level(3, &hosts).unwrap();
    let graph = Graph::new(&fabric).unwrap();
    let (first, last) = (graph.find("h0").unwrap(), graph.find("h11").unwrap());
    let wiring = Wiring::Graph(graph);
    assert_eq!(wiring.path(first, last).len(), 5);
    assert_links_are_consistent(&wiring);
    let regular = Wiring::FatTree(FatTree::new(&[4, 3], &[1, 1]));
    for one in 0..12 {
        for other in 0..12 {
            let (one, other) = (Vertex(one), Vertex(other));
            assert_eq!(wiring.path(one, other).len(), regular.path(one, other).len());
        }
    }
}

#[test]
fn a_torn_fabric_is_refused() {
    let mut fabric = tributary_topology::two_level(0, &["a", "b"]).unwrap();
    let island = fabric.add_switch("island").unwrap();
    let lost = fabric.add_host("lost").unwrap();
    fabric.add_link(island, lost).unwrap();
    assert!(Graph::new(&fabric).is_err());
    let mut fabric = tributary_topology::two_level(0, &["a"]).unwrap();
    fabric.add_host("loose").unwrap();
    assert_eq!(Graph::new(&fabric).unwrap_err(), graph::GraphError::Unlinked("loose".into()));
}

/// The links of each flow's path.
fn links(wiring: &Wiring, routing: Routing, from: u32, to: u32) -> Vec<u32> {
    let flow = Flow { from: Vertex(from), to: Vertex(to) };
    let (mut at, mut links) = (flow.from, Vec::new());
    while at != flow.to {
        let hop = wiring.next_of(routing, flow, at);
        links.push(hop.link.0);
        at = hop.to;
        assert!(links.len() <= 64, "the path from {from} to {to} does not end");
    }
    links
}

/// The most of these flows that share a link.
fn most_on_a_link(wiring: &Wiring, routing: Routing, flows: &[(u32, u32)]) -> usize {
    let mut count = vec![0; wiring.links() as usize];
    for &(from, to) in flows {
        for link in links(wiring, routing, from, to) {
            count[link as usize] += 1;
        }
    }
    count.into_iter().max().unwrap_or(0)
}

/// A leaf-spine network with as many links up as hosts, every host of one leaf sending to one of another:
/// forwarding tables give each flow links of its own, and hashes let some collide.
#[test]
fn hashed_flows_collide_on_a_leaf_spine_network() {
    let regular = Wiring::FatTree(FatTree::new(&[16, 4], &[1, 16]));
    let described = {
        let hosts: Vec<Vec<String>> = (0..4)
            .map(|leaf| (0..16).map(|host| format!("h{}", 16 * leaf + host)).collect())
            .collect();
        let mut fabric = tributary_topology::Fabric::new();
        let spines: Vec<_> =
            (0..16).map(|spine| fabric.add_switch(&format!("spine{spine}")).unwrap()).collect();
        for (leaf, own) in hosts.iter().enumerate() {
            let leaf = fabric.add_switch(&format!("leaf{leaf}")).unwrap();
            for &spine in &spines {
                fabric.add_link(spine, leaf).unwrap();
            }
            for name in own {
                let host = fabric.add_host(name).unwrap();
                fabric.add_link(leaf, host).unwrap();
            }
        }
        Wiring::Graph(Graph::new(&fabric).unwrap())
    };
    let flows: Vec<(u32, u32)> = (0..64).map(|host| (host, (host + 16) % 64)).collect();
    for wiring in [&regular, &described] {
        assert_eq!(most_on_a_link(wiring, Routing::Target, &flows), 1);
        let most = most_on_a_link(wiring, Routing::FlowHash, &flows);
        assert!((2..=6).contains(&most), "{most} of 16 flows on one of 16 links");
        for &(from, to) in &flows {
            let hashed = links(wiring, Routing::FlowHash, from, to);
            assert_eq!(hashed.len(), links(wiring, Routing::Target, from, to).len(), "shortest");
            assert_eq!(hashed, links(wiring, Routing::FlowHash, from, to), "a flow stays in order");
        }
    }
}

/// All hosts of one group send to the next: one link leads there, and many lead to other groups.
#[test]
fn valiant_routing_spreads_what_one_link_would_carry() {
    let (groups, per_group) = (9, 8);
    let wiring = Wiring::Dragonfly(Dragonfly::new(groups, 4, 2));
    let flows: Vec<(u32, u32)> = (0..per_group).map(|host| (host, per_group + host)).collect();
    assert_eq!(most_on_a_link(&wiring, Routing::Target, &flows), 8, "one global link");
    let spread = most_on_a_link(&wiring, Routing::Valiant, &flows);
    assert!(spread < 8, "{spread} on one link");
    for (from, to) in (0..72).flat_map(|from| (0..72).map(move |to| (from, to))) {
        if from != to {
            // Host, local, global, local, global, local, host, at most.
            assert!(links(&wiring, Routing::Valiant, from, to).len() <= 7);
        }
    }
}
