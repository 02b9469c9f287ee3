//! Switches, links and the way packets take through them.
//!
//! Owns where a packet goes next and when it gets there. Knows nothing of what packets carry, nor
//! of hosts' adapters. Regular fabrics compute their routes, so that a fabric of 100,000 hosts
//! costs no more memory than its links' state.

mod dragonfly;
mod fat_tree;
mod graph;
mod network;
mod torus;

pub use dragonfly::Dragonfly;
pub use fat_tree::FatTree;
pub use graph::{Graph, GraphError};
pub use network::{LinkCost, Network, NetworkCost, Step};
pub use torus::Torus;

/// A host or a switch; hosts come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vertex(pub u32);

/// One direction of one cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link(pub u32);

/// A link and where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The link.
    pub link: Link,
    /// Its far end.
    pub to: Vertex,
}

/// What is connected to what, and the minimal route between any two.
#[derive(Clone, Debug)]
pub enum Wiring {
    /// Levels of switches, any of which may be thinned out.
    FatTree(FatTree),
    /// Groups of routers, every two groups joined.
    Dragonfly(Dragonfly),
    /// A grid that wraps in every dimension, one host a router.
    Torus(Torus),
    /// Anything that a topology file describes.
    Graph(Graph),
}

impl Wiring {
    /// Hosts: the vertices below this number.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        match self {
            Self::FatTree(wiring) => wiring.hosts(),
            Self::Dragonfly(wiring) => wiring.hosts(),
            Self::Torus(wiring) => wiring.hosts(),
            Self::Graph(wiring) => wiring.hosts(),
        }
    }

    /// Hosts and switches.
    #[must_use]
    pub fn vertices(&self) -> u32 {
        match self {
            Self::FatTree(wiring) => wiring.vertices(),
            Self::Dragonfly(wiring) => wiring.vertices(),
            Self::Torus(wiring) => wiring.vertices(),
            Self::Graph(wiring) => wiring.vertices(),
        }
    }

    /// Links, each direction counted.
    #[must_use]
    pub fn links(&self) -> u32 {
        match self {
            Self::FatTree(wiring) => wiring.links(),
            Self::Dragonfly(wiring) => wiring.links(),
            Self::Torus(wiring) => wiring.links(),
            Self::Graph(wiring) => wiring.links(),
        }
    }

    /// The switch that a host hangs from.
    #[must_use]
    pub fn switch_of(&self, host: Vertex) -> Vertex {
        let elsewhere = Vertex(u32::from(host.0 == 0));
        self.next(host, elsewhere).to
    }

    /// The next link on a shortest way from `at` to `to`, which differ: always the same one, so that
    /// packets between two vertices stay in order.
    #[must_use]
    #[inline]
    pub fn next(&self, at: Vertex, to: Vertex) -> Hop {
        debug_assert_ne!(at, to, "a packet that is there goes nowhere");
        match self {
            Self::FatTree(wiring) => wiring.next(at, to),
            Self::Dragonfly(wiring) => wiring.next(at, to),
            Self::Torus(wiring) => wiring.next(at, to),
            Self::Graph(wiring) => wiring.next(at, to),
        }
    }

    /// Every vertex on the way from `source` to `target`, both ends included.
    #[must_use]
    pub fn path(&self, source: Vertex, target: Vertex) -> Vec<Vertex> {
        let mut path = vec![source];
        let mut at = source;
        while at != target {
            at = self.next(at, target).to;
            path.push(at);
        }
        path
    }
}

#[cfg(test)]
mod tests;
