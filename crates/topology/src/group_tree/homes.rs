//! Which node serves each host of a group.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use tributary_wire::host::machine_of;

use super::error::GroupTreeError;
use crate::spread;
use crate::tree::{AggregationTree, NodeIndex};

/// The node that serves each entry of `hosts`.
pub(super) fn assign<S: AsRef<str>>(
    tree: &AggregationTree,
    hosts: &[S],
) -> Result<Vec<NodeIndex>, GroupTreeError> {
    if tree.nodes().is_empty() {
        return Err(GroupTreeError::NoAggregationNode);
    }
    let mut known: BTreeMap<&str, NodeIndex> = BTreeMap::new();
    let mut unknown: Vec<&str> = Vec::new();
    let mut seen = alloc::collections::BTreeSet::new();
    for host in hosts.iter().map(AsRef::as_ref).filter(|host| seen.insert(*host)) {
        match tree.home(host) {
            Some(home) => drop(known.insert(host, home)),
            None => unknown.push(host),
        }
    }
    assign_unknown(tree, hosts, &unknown, &mut known);
    Ok(hosts.iter().map(|host| known[host.as_ref()]).collect())
}

/// Assigns hosts that the fabric does not know to the nodes on their own machine, else to the lowest
/// nodes of the main tree, in blocks. A host goes to the next candidate if a node has no child left.
fn assign_unknown<'a, S: AsRef<str>>(
    tree: &AggregationTree,
    hosts: &'a [S],
    unknown: &[&'a str],
    known: &mut BTreeMap<&'a str, NodeIndex>,
) {
    let mut children: BTreeMap<&str, usize> = BTreeMap::new();
    for host in hosts {
        *children.entry(host.as_ref()).or_default() += 1;
    }
    let mut taken: BTreeMap<NodeIndex, usize> = BTreeMap::new();
    for (host, home) in known.iter() {
        *taken.entry(*home).or_default() += children[host];
    }
    for (candidates, hosts) in by_candidates(tree, unknown) {
        for (index, host) in hosts.iter().enumerate() {
            let wanted = spread::block(index, hosts.len(), candidates.len());
            let fits = |at: &NodeIndex| {
                let placed = tree.node(*at);
                let taken = taken.get(at).copied().unwrap_or(0) + placed.children.len();
                taken + children[host] <= usize::from(placed.node.radix)
            };
            let mut onwards = candidates[wanted..].iter().chain(&candidates[..wanted]);
            // If none fits, the block's own node stays, and the radix check names it.
            let home = *onwards.find(|at| fits(at)).unwrap_or(&candidates[wanted]);
            *taken.entry(home).or_default() += children[host];
            known.insert(host, home);
        }
    }
}

/// Groups hosts by the nodes that may serve them.
fn by_candidates<'a>(
    tree: &AggregationTree,
    unknown: &[&'a str],
) -> BTreeMap<Vec<NodeIndex>, Vec<&'a str>> {
    let everywhere = lowest(tree, tree.at_or_below(tree.roots()[0]));
    let mut groups: BTreeMap<Vec<NodeIndex>, Vec<&str>> = BTreeMap::new();
    for host in unknown {
        let own: Vec<_> = tree
            .nodes()
            .iter()
            .filter(|placed| machine_of(&placed.node.machine) == machine_of(host))
            .filter_map(|placed| tree.find(&placed.node.name))
            .collect();
        let candidates = if own.is_empty() { everywhere.clone() } else { lowest(tree, own) };
        groups.entry(candidates).or_default().push(host);
    }
    groups
}

/// The nodes among these without a node below them, by name; all of them if each has one.
fn lowest(tree: &AggregationTree, mut nodes: Vec<NodeIndex>) -> Vec<NodeIndex> {
    nodes.sort_unstable();
    let leaves: Vec<_> =
        nodes.iter().copied().filter(|&at| tree.node(at).children.is_empty()).collect();
    if leaves.is_empty() { nodes } else { leaves }
}
