//! Equal-cost routes between the switches of a graph.
//!
//! A switch forwards towards a vertex by any of its links that lie on a shortest path. Which of them
//! depends on the target alone, as in InfiniBand's forwarding tables and as in
//! [`FatTree`](crate::fabric::FatTree): so the packets of a flow stay in order, and the targets spread
//! evenly over the links.

use std::collections::{BTreeMap, VecDeque};

/// Hops to a switch that can't be reached.
const UNREACHABLE: u32 = u32::MAX;

/// For each pair of switches, the neighbours of the first that are one hop closer to the second.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    switches: usize,
    /// `choices[target * switches + at]`: a place in `sets`.
    choices: Vec<u32>,
    /// Lists of neighbours' places, each once.
    sets: Vec<Vec<u16>>,
    /// By switch: the ways that lead up to it from below; see [`strides`].
    strides: Vec<u32>,
}

/// The links among switches, and which switches have hosts. Switches count from 0 here.
pub(super) struct Switches<'a> {
    /// Other switches at each switch, with the place of the link among the switch's links.
    pub(super) links: &'a [Vec<(u32, u16)>],
    pub(super) have_hosts: &'a [bool],
}

impl Routes {
    /// All routes, or a switch that the first one can't reach.
    pub(super) fn new(graph: &Switches<'_>) -> Result<Self, usize> {
        let switches = graph.links.len();
        let mut known = BTreeMap::from([(Vec::new(), 0)]);
        let mut choices = Vec::with_capacity(switches * switches);
        for target in 0..switches {
            let hops = hops_from(graph.links, &[target]);
            if let Some(lost) = hops.iter().position(|&hops| hops == UNREACHABLE) {
                return Err(lost);
            }
            for at in 0..switches {
                let closer = graph.links[at].iter().filter(|(to, _)| hops[*to as usize] < hops[at]);
                let ports: Vec<u16> = closer.map(|(_, port)| *port).collect();
                let next = known.len() as u32;
                choices.push(*known.entry(ports).or_insert(next));
            }
        }
        let mut sets = vec![Vec::new(); known.len()];
        for (ports, place) in known {
            sets[place as usize] = ports;
        }
        Ok(Self { switches, choices, sets, strides: strides(graph) })
    }

    /// The link of switch `at` on a path to switch `target`, for a packet to vertex `key`.
    pub(super) fn port(&self, at: usize, target: usize, key: u32) -> u16 {
        let ports = self.ports(at, target);
        ports[(key / self.strides[at]) as usize % ports.len()]
    }

    /// All links of switch `at` on shortest paths to switch `target`.
    pub(super) fn ports(&self, at: usize, target: usize) -> &[u16] {
        &self.sets[self.choices[target * self.switches + at] as usize]
    }
}

/// For each switch, how many ways lead up to it from a switch with hosts.
///
/// On a level where each switch has `k` links up, `target % k` spreads the targets. All packets that come
/// up by one of these links have the same remainder, so the next level divides by `k` first. This gives
/// the digits of D-mod-k routing on a fat tree, whatever the number of its levels.
fn strides(graph: &Switches<'_>) -> Vec<u32> {
    let edge: Vec<usize> = (0..graph.links.len()).filter(|&at| graph.have_hosts[at]).collect();
    let level = hops_from(graph.links, &edge);
    let mut order: Vec<usize> = (0..graph.links.len()).collect();
    order.sort_by_key(|&at| level[at]);
    let mut strides = vec![1_u32; graph.links.len()];
    for at in order {
        let below = graph.links[at]
            .iter()
            .find(|(to, _)| level[*to as usize].saturating_add(1) == level[at]);
        if let Some(&(below, _)) = below {
            let below = below as usize;
            let ups =
                graph.links[below].iter().filter(|(to, _)| level[*to as usize] > level[below]);
            strides[at] = strides[below].saturating_mul(ups.count() as u32);
        }
    }
    strides
}

/// Hops from the nearest of some switches to every switch.
fn hops_from(links: &[Vec<(u32, u16)>], starts: &[usize]) -> Vec<u32> {
    let mut hops = vec![UNREACHABLE; links.len()];
    for &start in starts {
        hops[start] = 0;
    }
    let mut frontier: VecDeque<usize> = starts.iter().copied().collect();
    while let Some(at) = frontier.pop_front() {
        for &(to, _) in &links[at] {
            let to = to as usize;
            if hops[to] == UNREACHABLE {
                hops[to] = hops[at] + 1;
                frontier.push_back(to);
            }
        }
    }
    hops
}
