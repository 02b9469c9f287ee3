//! The fabric of a single machine that runs all nodes, when no topology is given.

use alloc::format;

use crate::fabric::{Fabric, FabricError};
use crate::spread;

/// A switch `root`, switches `leaf0`, `leaf1`, … below it, and `hosts` distributed over the leaves in
/// blocks. Each switch has an aggregation node of its own name. Without leaves, the hosts are linked
/// to the root.
///
/// # Errors
/// [`FabricError::VertexTwice`] if two hosts, or a host and a switch, have one name.
pub fn two_level<S: AsRef<str>>(leaves: u16, hosts: &[S]) -> Result<Fabric, FabricError> {
    let mut fabric = Fabric::new();
    let root = fabric.add_switch("root")?;
    fabric.add_aggregation_node("root", root)?;
    fabric.prefer_root("root");
    let mut edge = alloc::vec::Vec::with_capacity(usize::from(leaves));
    for leaf in 0..leaves {
        let name = format!("leaf{leaf}");
        let switch = fabric.add_switch(&name)?;
        fabric.add_link(root, switch)?;
        fabric.add_aggregation_node(&name, switch)?;
        edge.push(switch);
    }
    if edge.is_empty() {
        edge.push(root);
    }
    for (index, name) in hosts.iter().enumerate() {
        let host = fabric.add_host(name.as_ref())?;
        fabric.add_link(edge[spread::block(index, hosts.len(), edge.len())], host)?;
    }
    Ok(fabric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_distributed_in_blocks() {
        let fabric = two_level(2, &["m#0", "m#1", "m#2", "m#3", "m#4"]).unwrap();
        let switch_of = |host: &str| {
            let at = fabric.neighbours(fabric.find(host).unwrap())[0];
            fabric.vertex(at).name.clone()
        };
        assert_eq!(["m#0", "m#1", "m#2"].map(switch_of), ["leaf0"; 3]);
        assert_eq!(["m#3", "m#4"].map(switch_of), ["leaf1"; 2]);
        assert_eq!(fabric.aggregation_nodes().len(), 3);
    }

    #[test]
    fn a_host_named_as_a_switch_is_refused() {
        assert_eq!(two_level(1, &["leaf0"]), Err(FabricError::VertexTwice("leaf0".into())));
    }
}
