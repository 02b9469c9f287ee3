//! The aggregation trees over a fabric: which AN is the parent of which, and which AN serves which
//! host.

mod linked;
mod parents;
mod report;
mod survey;
#[cfg(test)]
mod tests;

use crate::fabric::Fabric;
use survey::Survey;

pub use linked::{AggregationNode, AggregationTree, NodeIndex, PlacedNode};
pub use report::{PlacementError, PlacementNote};

impl AggregationTree {
    /// Places `nodes` on `fabric`.
    ///
    /// Position: an AN is where the description puts it; else at the switch or host of its own name;
    /// else at the host it runs on.
    ///
    /// Root: the AN that the description prefers; else the one whose farthest host is nearest (the
    /// centre); of several, the one farthest from its nearest host (the highest); of several, the
    /// first by name.
    ///
    /// Parent: the nearest AN on a shortest path to the root with a free child, counting one child
    /// for each host that it serves; else the nearest AN of the tree with one; else the same without
    /// the children reserved for hosts. ANs that the fabric does not know fill the tree level by
    /// level, by name. Without a topology file, all ANs do.
    ///
    /// # Errors
    /// [`PlacementError`]: names must differ, and every radix must be at least 1.
    pub fn place(fabric: &Fabric, nodes: &[AggregationNode]) -> Result<Self, PlacementError> {
        let mut nodes = nodes.to_vec();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        check(&nodes)?;
        let survey = Survey::of(fabric, &nodes);
        Ok(parents::link(fabric, nodes, survey))
    }
}

fn check(nodes: &[AggregationNode]) -> Result<(), PlacementError> {
    if let Some(pair) = nodes.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(PlacementError::NameTwice(pair[0].name.clone()));
    }
    match nodes.iter().find(|node| node.radix == 0) {
        Some(node) => Err(PlacementError::RadixZero(node.name.clone())),
        None => Ok(()),
    }
}
