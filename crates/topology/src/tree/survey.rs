//! Where aggregation nodes are, how far they are from each other, and which hosts each serves.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::linked::{AggregationNode, NodeIndex};
use crate::distance::{UNREACHABLE, hops_from};
use crate::fabric::{Fabric, VertexId, VertexKind};
use crate::hosts;
use crate::spread;

/// Distances and served hosts, as placement needs them; indexed by node, nodes sorted by name.
pub(super) struct Survey {
    /// The vertex to which each node is attached.
    pub(super) at: Vec<Option<VertexId>>,
    /// Hops from each node to each node; [`UNREACHABLE`] if either is not in the fabric.
    pub(super) hops: Vec<Vec<u32>>,
    /// Hops from each node to the farthest host it reaches.
    pub(super) farthest_host: Vec<u32>,
    /// Hops from each node to the nearest host.
    pub(super) nearest_host: Vec<u32>,
    /// The node that serves each host.
    pub(super) homes: BTreeMap<String, NodeIndex>,
    /// How many hosts each node serves.
    pub(super) hosts_served: Vec<usize>,
}

/// The nearest nodes of one host.
#[derive(Clone)]
struct Nearest {
    hops: u32,
    nodes: Vec<usize>,
}

impl Survey {
    pub(super) fn of(fabric: &Fabric, nodes: &[AggregationNode]) -> Self {
        let at: Vec<_> = nodes.iter().map(|node| locate(fabric, node)).collect();
        let mut survey = Self {
            hops: vec![vec![UNREACHABLE; nodes.len()]; nodes.len()],
            farthest_host: vec![0; nodes.len()],
            nearest_host: vec![UNREACHABLE; nodes.len()],
            homes: BTreeMap::new(),
            hosts_served: vec![0; nodes.len()],
            at,
        };
        let mut nearest =
            vec![Nearest { hops: UNREACHABLE, nodes: Vec::new() }; fabric.vertices().len()];
        for node in 0..nodes.len() {
            if let Some(start) = survey.at[node] {
                let hops = hops_from(fabric, start);
                survey.measure(node, &hops);
                survey.measure_hosts(fabric, node, &hops, &mut nearest);
            }
        }
        survey.assign_hosts(fabric, &nearest);
        survey
    }

    fn measure(&mut self, node: usize, hops: &[u32]) {
        for (other, at) in self.at.iter().enumerate() {
            if let Some(at) = at {
                self.hops[node][other] = hops[at.index()];
            }
        }
    }

    fn measure_hosts(
        &mut self,
        fabric: &Fabric,
        node: usize,
        hops: &[u32],
        nearest: &mut [Nearest],
    ) {
        for (host, vertex) in fabric.vertices() {
            let far = hops[host.index()];
            if vertex.kind != VertexKind::Host || far == UNREACHABLE {
                continue;
            }
            self.farthest_host[node] = self.farthest_host[node].max(far);
            self.nearest_host[node] = self.nearest_host[node].min(far);
            let best = &mut nearest[host.index()];
            if far < best.hops {
                *best = Nearest { hops: far, nodes: vec![node] };
            } else if far == best.hops {
                best.nodes.push(node);
            }
        }
    }

    /// Assigns each host to a nearest node. Hosts with the same several nearest nodes are distributed
    /// over these in blocks, by host name.
    fn assign_hosts(&mut self, fabric: &Fabric, nearest: &[Nearest]) {
        let mut alike: BTreeMap<&[usize], Vec<&str>> = BTreeMap::new();
        for (host, vertex) in fabric.vertices() {
            let best = &nearest[host.index()];
            if !best.nodes.is_empty() {
                alike.entry(&best.nodes).or_default().push(&vertex.name);
            }
        }
        for (nodes, mut hosts) in alike {
            hosts.sort_unstable();
            for (index, host) in hosts.iter().enumerate() {
                let node = nodes[spread::block(index, hosts.len(), nodes.len())];
                self.homes.insert(String::from(*host), NodeIndex(node));
                self.hosts_served[node] += 1;
            }
        }
    }
}

fn locate(fabric: &Fabric, node: &AggregationNode) -> Option<VertexId> {
    fabric
        .aggregation_node(&node.name)
        .or_else(|| fabric.find(&node.name))
        .or_else(|| hosts::spellings(&node.machine).find_map(|name| fabric.find(name)))
}
