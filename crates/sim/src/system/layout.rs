//! The placement of aggregation nodes: where each is, and its parent.

use std::collections::BTreeMap;

use tributary_topology::{AggregationNode, AggregationTree, Fabric, VertexKind};
use tributary_wire::ChildIndex;

use super::error::SystemError;
use crate::fabric::{Graph, Vertex, Wiring};
use crate::preset::BesideRanks;
use crate::world::{AggregatorId, ChildPlan, GroupPlan, NodePlan, ProcessId};

/// The tree of all aggregation nodes over a fabric.
#[derive(Clone, Debug)]
pub struct Layout {
    hosts: u32,
    nodes: Vec<PlacedAggregator>,
    homes: Homes,
    view: View,
    /// Whether hosts with an aggregator run ranks as well.
    is_beside_ranks: bool,
}

/// What the manager knows of the fabric.
#[derive(Clone, Debug)]
enum View {
    /// The links that the tree uses.
    Tree,
    /// All of it, and the hosts' names.
    Whole(Fabric, Vec<String>),
    /// Nothing: it gives hosts to aggregators by the machines that both name.
    Nothing,
}

/// One aggregator's place.
#[derive(Clone, Debug)]
struct PlacedAggregator {
    name: String,
    vertex: Vertex,
    parent: Option<usize>,
}

/// Which aggregator serves a host.
#[derive(Clone, Debug)]
enum Homes {
    /// This many neighbouring hosts for each of the first aggregators.
    Blocks(u32),
    /// By host.
    Table(Vec<usize>),
}

impl Layout {
    /// The tree of a regular fabric.
    ///
    /// Fat tree: the first switch of each level above every block of hosts, so that each child of an
    /// aggregator is one link away. Dragonfly: every router; its parent is the first router of its group, and
    /// theirs is the first router of all. Torus: every router; its parent is the next router on the path
    /// to the first.
    ///
    /// # Panics
    /// On a fabric from a topology file.
    #[must_use]
    pub fn regular(wiring: &Wiring) -> Self {
        let hosts = wiring.hosts();
        let (places, per_node) = match wiring {
            Wiring::FatTree(tree) => {
                let mut switches: Vec<Vec<Vertex>> = Vec::new();
                for level in 1..=tree.levels() {
                    let mut above: Vec<_> =
                        (0..hosts).map(|host| tree.switch_above(Vertex(host), level)).collect();
                    above.dedup();
                    switches.push(above);
                }
                let per_leaf = hosts as usize / switches[0].len();
                (fat_tree_places(&switches), per_leaf as u32)
            }
            Wiring::Dragonfly(fabric) => {
                let (routers, groups) =
                    (wiring.vertices() - hosts, hosts / fabric.hosts_per_group());
                let per_group = routers / groups;
                let parent = |router: u32| match router {
                    0 => None,
                    _ if router.is_multiple_of(per_group) => Some(0),
                    _ => Some((router - router % per_group) as usize),
                };
                (router_places(hosts, routers, &parent), hosts / routers)
            }
            Wiring::Torus(_) => {
                let root = Vertex(hosts);
                let parent = |router: u32| {
                    let at = Vertex(hosts + router);
                    (at != root).then(|| (wiring.next(at, root).to.0 - hosts) as usize)
                };
                (router_places(hosts, hosts, &parent), 1)
            }
            Wiring::Graph(_) => panic!("a fabric from a file has no regular tree"),
        };
        let homes = Homes::Blocks(per_node);
        Self { hosts, nodes: places, homes, view: View::Tree, is_beside_ranks: false }
    }

    /// The same tree with every aggregator in software, on a host of its own: the one that a topology file
    /// attaches it to, else the last host below it without an aggregator. Aggregators that serve no host are left out.
    ///
    /// # Errors
    /// [`SystemError::NoHostForNode`].
    pub fn on_hosts(mut self) -> Result<Self, SystemError> {
        self.leave_out_idle();
        let mut is_free = vec![true; self.hosts as usize];
        for node in self.nodes.iter().filter(|node| node.vertex.0 < self.hosts) {
            is_free[node.vertex.0 as usize] = false;
        }
        // The hosts below aggregators are nested sets, so a host goes to the lowest aggregator that still needs one.
        for host in (0..self.hosts).rev().filter(|&host| is_free[host as usize]) {
            let above = self.above(Vertex(host));
            if let Some(node) = above.into_iter().find(|&node| self.is_in_switch(node)) {
                self.nodes[node].vertex = Vertex(host);
            }
        }
        match (0..self.nodes.len()).find(|&node| self.is_in_switch(node)) {
            Some(node) => Err(SystemError::NoHostForNode { node: self.nodes[node].name.clone() }),
            None => Ok(self),
        }
    }

    /// The same tree, if no aggregator is attached to a host.
    ///
    /// # Errors
    /// [`SystemError::NodeOnHost`].
    pub fn in_switches(self, graph: &Graph) -> Result<Self, SystemError> {
        match self.nodes.iter().find(|node| node.vertex.0 < self.hosts) {
            Some(node) => Err(SystemError::NodeOnHost {
                node: node.name.clone(),
                host: graph.name(node.vertex).to_owned(),
            }),
            None => Ok(self),
        }
    }

    fn is_in_switch(&self, node: usize) -> bool {
        self.nodes[node].vertex.0 >= self.hosts
    }

    /// The aggregators above a host, the lowest first.
    fn above(&self, host: Vertex) -> Vec<usize> {
        std::iter::successors(Some(self.home(host)), |&node| self.nodes[node].parent).collect()
    }

    /// Leaves out aggregators with no host below them, such as those of spines that the tree does not use.
    fn leave_out_idle(&mut self) {
        let mut serves = vec![false; self.nodes.len()];
        for host in (0..self.hosts).map(Vertex) {
            for node in self.above(host) {
                serves[node] = true;
            }
        }
        self.keep(&serves);
    }

    /// Leaves out the lowest levels of aggregators: what they served, the next aggregator above serves. None if no
    /// aggregator above serves it.
    #[must_use]
    pub fn without_lowest(mut self, levels: u32) -> Option<Self> {
        if self.is_managers() {
            return (levels == 0).then_some(self);
        }
        self.leave_out_idle();
        for _ in 0..levels {
            let mut is_parent = vec![false; self.nodes.len()];
            for parent in self.nodes.iter().filter_map(|node| node.parent) {
                is_parent[parent] = true;
            }
            let homes: Option<Vec<usize>> = (0..self.hosts)
                .map(|host| {
                    let home = self.home(Vertex(host));
                    if is_parent[home] { Some(home) } else { self.nodes[home].parent }
                })
                .collect();
            self.homes = Homes::Table(homes?);
            self.keep(&is_parent);
        }
        Some(self)
    }

    /// Keeps these aggregators. No host is served by another, and no kept aggregator is below another.
    fn keep(&mut self, is_kept: &[bool]) {
        let mut kept = 0;
        let places: Vec<usize> = is_kept
            .iter()
            .map(|&is_kept| {
                kept += usize::from(is_kept);
                kept.saturating_sub(1)
            })
            .collect();
        let all = core::mem::take(&mut self.nodes).into_iter().zip(is_kept);
        self.nodes = all.filter_map(|(node, &is_kept)| is_kept.then_some(node)).collect();
        for node in &mut self.nodes {
            node.parent = node.parent.map(|parent| places[parent]);
        }
        if let Homes::Table(homes) = &mut self.homes {
            homes.iter_mut().for_each(|home| *home = places[*home]);
        }
    }

    /// The tree that the manager would place on the fabric of a topology file: aggregators where the file puts
    /// them, or one at every switch if it names none.
    #[must_use]
    pub fn describe_fabric(fabric: &Fabric, graph: &Graph) -> Self {
        let mut named: Vec<(String, Vertex)> = fabric
            .aggregation_nodes()
            .filter_map(|(name, at)| Some((name.to_owned(), graph.find(&fabric.vertex(at).name)?)))
            .collect();
        if named.is_empty() {
            named = fabric
                .vertices()
                .filter(|(_, vertex)| vertex.kind == VertexKind::Switch)
                .filter_map(|(_, vertex)| Some((vertex.name.clone(), graph.find(&vertex.name)?)))
                .collect();
        }
        named.sort();
        let offered: Vec<_> = named
            .iter()
            .map(|(name, _)| AggregationNode {
                name: name.clone(),
                machine: name.clone(),
                radix: u16::MAX,
            })
            .collect();
        let tree = AggregationTree::place(fabric, &offered).expect("names differ");
        let places =
            named.into_iter().zip(tree.nodes()).map(|((name, vertex), placed)| PlacedAggregator {
                name,
                vertex,
                parent: placed.parent.map(tributary_topology::NodeIndex::get),
            });
        let hosts = hosts_of(fabric);
        let home = |host: &String| tree.home(host).expect("every host reaches a node").get();
        let homes = hosts.iter().map(home).collect();
        Self {
            hosts: hosts.len() as u32,
            nodes: places.collect(),
            homes: Homes::Table(homes),
            view: View::Whole(fabric.clone(), hosts),
            is_beside_ranks: false,
        }
    }

    /// Aggregators on some hosts of a regular fabric, beside the ranks there, and a manager without a topology file. It
    /// makes the tree.
    ///
    /// # Errors
    /// [`SystemError`], if there are no such hosts.
    pub fn beside_ranks(hosts: u32, beside: &BesideRanks) -> Result<Self, SystemError> {
        let names: Vec<String> = (0..hosts).map(|host| name_of(Vertex(host))).collect();
        let nodes = find_aggregator_hosts(&names, beside)?;
        let nodes = nodes.into_iter().map(|host| {
            let name = names[host as usize].clone();
            PlacedAggregator { name, vertex: Vertex(host), parent: None }
        });
        Ok(Self {
            hosts,
            nodes: nodes.collect(),
            homes: Homes::Blocks(hosts),
            view: View::Nothing,
            is_beside_ranks: true,
        })
    }

    /// The same on the fabric of a topology file, which the manager has as well. The file's own aggregators are left
    /// out.
    ///
    /// # Errors
    /// As [`Layout::beside_ranks`].
    pub fn describe_beside_ranks(
        fabric: &Fabric,
        graph: &Graph,
        beside: &BesideRanks,
    ) -> Result<Self, SystemError> {
        let mut fabric = without_nodes(fabric);
        let hosts = hosts_of(&fabric);
        for host in find_aggregator_hosts(&hosts, beside)? {
            let name = &hosts[host as usize];
            let at = fabric.find(name).expect("the host was just listed");
            fabric.add_aggregation_node(name, at).expect("hosts' names differ");
        }
        Ok(Self { is_beside_ranks: true, ..Self::describe_fabric(&fabric, graph) })
    }

    /// Whether hosts with an aggregator run ranks as well.
    #[must_use]
    pub fn is_beside_ranks(&self) -> bool {
        self.is_beside_ranks
    }

    /// Whether only the manager knows the tree.
    #[must_use]
    pub fn is_managers(&self) -> bool {
        matches!(self.view, View::Nothing)
    }

    /// The vertex of each aggregator.
    pub fn vertices(&self) -> impl Iterator<Item = Vertex> + '_ {
        self.nodes.iter().map(|node| node.vertex)
    }

    /// The name of each aggregator.
    pub fn node_names(&self) -> impl Iterator<Item = String> + '_ {
        self.nodes.iter().map(|node| node.name.clone())
    }

    /// The machine of each aggregator, as the manager knows it: that of the host beside whose ranks it runs, else its
    /// own.
    pub fn node_machines(&self) -> impl Iterator<Item = String> + '_ {
        self.nodes.iter().map(|node| match self.is_beside_ranks {
            true => self.host_name(node.vertex),
            false => node.name.clone(),
        })
    }

    /// The manager's name for a host.
    #[must_use]
    pub fn host_name(&self, host: Vertex) -> String {
        match &self.view {
            View::Whole(_, names) => names[host.0 as usize].clone(),
            View::Tree | View::Nothing => name_of(host),
        }
    }

    /// The fabric that the manager gets: the description, or the links of a regular fabric that the tree
    /// uses.
    ///
    /// # Panics
    /// Never: the names differ.
    #[must_use]
    pub fn fabric(&self, wiring: &Wiring) -> Fabric {
        match &self.view {
            View::Whole(fabric, _) => return fabric.clone(),
            View::Nothing => return Fabric::new(),
            View::Tree => {}
        }
        let mut fabric = Fabric::new();
        let switches: Vec<_> = self
            .nodes
            .iter()
            .map(|node| fabric.add_switch(&node.name).expect("node names differ"))
            .collect();
        for (node, &at) in self.nodes.iter().zip(&switches) {
            fabric.add_aggregation_node(&node.name, at).expect("node names differ");
            match node.parent {
                Some(parent) => {
                    fabric.add_link(switches[parent], at).expect("a node is not its own parent");
                }
                None => fabric.prefer_root(&node.name),
            }
        }
        for host in (0..wiring.hosts()).map(Vertex) {
            let at = fabric.add_host(&self.host_name(host)).expect("host names differ");
            fabric.add_link(switches[self.home(host)], at).expect("a host is linked to a switch");
        }
        fabric
    }

    fn home(&self, host: Vertex) -> usize {
        match &self.homes {
            Homes::Blocks(hosts) => (host.0 / hosts) as usize,
            Homes::Table(homes) => homes[host.0 as usize],
        }
    }

    /// The group of these processes, as the manager would grant it: the subtree of the lowest aggregator above
    /// all of them, with children in the order of their first process.
    ///
    /// # Panics
    /// If there is no process.
    #[must_use]
    pub fn plan(&self, processes: &[(ProcessId, Vertex)]) -> GroupPlan {
        assert!(!processes.is_empty(), "a group has a member");
        let mut children: BTreeMap<usize, Vec<Child>> = BTreeMap::new();
        for &(process, host) in processes {
            let mut at = self.home(host);
            let mut is_new = !children.contains_key(&at);
            children.entry(at).or_default().push(Child::Process(process));
            while let (true, Some(parent)) = (is_new, self.nodes[at].parent) {
                is_new = !children.contains_key(&parent);
                children.entry(parent).or_default().push(Child::Node(at));
                at = parent;
            }
        }
        let mut root = (0..self.nodes.len())
            .find(|node| self.nodes[*node].parent.is_none() && children.contains_key(node))
            .expect("a tree has a root");
        while let [Child::Node(only)] = children[&root][..] {
            root = only;
        }
        list(root, &children)
    }
}

/// A host's name in a regular fabric.
fn name_of(host: Vertex) -> String {
    format!("host{}", host.0)
}

/// The names of a fabric's hosts.
fn hosts_of(fabric: &Fabric) -> Vec<String> {
    let hosts = fabric.vertices().filter(|(_, vertex)| vertex.kind == VertexKind::Host);
    hosts.map(|(_, vertex)| vertex.name.clone()).collect()
}

/// The hosts among `names` that run an aggregator beside their ranks.
fn find_aggregator_hosts(names: &[String], beside: &BesideRanks) -> Result<Vec<u32>, SystemError> {
    let has = names.len() as u32;
    match beside {
        BesideRanks::Count(needed) if *needed > has => {
            Err(SystemError::TooFewHosts { needed: *needed, has })
        }
        BesideRanks::Count(count) => Ok((0..*count)
            .map(|node| (u64::from(node) * u64::from(has) / u64::from(*count)) as u32)
            .collect()),
        BesideRanks::Hosts(wanted) => {
            let place = |host: &String| {
                let place = names.iter().position(|name| name == host);
                place
                    .map(|place| place as u32)
                    .ok_or_else(|| SystemError::NoSuchHost { host: host.clone() })
            };
            let mut places = wanted.iter().map(place).collect::<Result<Vec<_>, _>>()?;
            places.sort_unstable();
            places.dedup();
            Ok(places)
        }
    }
}

/// A copy of a fabric that has no aggregation nodes yet.
fn without_nodes(fabric: &Fabric) -> Fabric {
    let mut copy = Fabric::new();
    for (_, vertex) in fabric.vertices() {
        let added = match vertex.kind {
            VertexKind::Host => copy.add_host(&vertex.name),
            VertexKind::Switch => copy.add_switch(&vertex.name),
        };
        added.expect("names differed before");
    }
    for (id, vertex) in fabric.vertices() {
        let one = copy.find(&vertex.name).expect("it was just added");
        for other in fabric.neighbours(id) {
            let other = copy.find(&fabric.vertex(*other).name).expect("it was just added");
            if !copy.neighbours(one).contains(&other) {
                copy.add_link(one, other).expect("the link was there before");
            }
        }
    }
    copy
}

#[derive(Clone, Copy, Debug)]
enum Child {
    Node(usize),
    Process(ProcessId),
}

/// Lists a subtree level by level.
fn list(root: usize, children: &BTreeMap<usize, Vec<Child>>) -> GroupPlan {
    let mut order = vec![(root, None)];
    let mut nodes = Vec::new();
    let mut next = 0;
    while let Some(&(at, parent)) = order.get(next) {
        let below = children[&at].iter().enumerate().map(|(index, child)| match *child {
            Child::Node(node) => {
                order.push((node, Some((next, ChildIndex(index as u16)))));
                ChildPlan::Node(order.len() - 1)
            }
            Child::Process(process) => ChildPlan::Process(process),
        });
        let below = below.collect();
        nodes.push(NodePlan { aggregator: AggregatorId(at as u32), parent, children: below });
        next += 1;
    }
    GroupPlan { nodes }
}

/// One aggregator at each switch of `switches`, a list for each level from below.
fn fat_tree_places(switches: &[Vec<Vertex>]) -> Vec<PlacedAggregator> {
    let mut places = Vec::new();
    let mut first = 0;
    for (level, row) in switches.iter().enumerate() {
        let above = switches.get(level + 1).map(Vec::len);
        for (index, &vertex) in row.iter().enumerate() {
            let parent = above.map(|above| first + row.len() + index * above / row.len());
            places.push(PlacedAggregator { name: format!("node{}", vertex.0), vertex, parent });
        }
        first += row.len();
    }
    places
}

fn router_places(
    hosts: u32,
    routers: u32,
    parent: &dyn Fn(u32) -> Option<usize>,
) -> Vec<PlacedAggregator> {
    (0..routers)
        .map(|router| PlacedAggregator {
            name: format!("node{}", hosts + router),
            vertex: Vertex(hosts + router),
            parent: parent(router),
        })
        .collect()
}
