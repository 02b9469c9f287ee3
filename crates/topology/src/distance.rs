//! Hops between vertices of a fabric.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::fabric::{Fabric, VertexId, VertexKind};

/// Hops to a vertex that has no path.
pub(crate) const UNREACHABLE: u32 = u32::MAX;

/// Hops from `start` to every vertex, by vertex index. Hosts do not forward: a path may begin or
/// end at a host, but never pass through it.
pub(crate) fn hops_from(fabric: &Fabric, start: VertexId) -> Vec<u32> {
    let mut hops = vec![UNREACHABLE; fabric.vertices().len()];
    hops[start.index()] = 0;
    let mut frontier = VecDeque::from([start]);
    while let Some(at) = frontier.pop_front() {
        if at != start && fabric.vertex(at).kind == VertexKind::Host {
            continue;
        }
        for &next in fabric.neighbours(at) {
            if hops[next.index()] == UNREACHABLE {
                hops[next.index()] = hops[at.index()] + 1;
                frontier.push_back(next);
            }
        }
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_through_a_host() {
        let mut fabric = Fabric::new();
        let left = fabric.add_switch("left").unwrap();
        let right = fabric.add_switch("right").unwrap();
        let host = fabric.add_host("host").unwrap();
        fabric.add_link(left, host).unwrap();
        fabric.add_link(host, right).unwrap();
        assert_eq!(hops_from(&fabric, left), [0, UNREACHABLE, 1]);
        assert_eq!(hops_from(&fabric, host), [1, 1, 0]);
    }
}
