//! Switches, links and the routes of packets.
//!
//! Owns where a packet goes next and when it arrives. Must not know the content of packets, nor hosts'
//! adapters. Regular fabrics compute their routes, so a fabric of 100,000 hosts needs memory for the
//! state of its links only.

mod dragonfly;
mod fat_tree;
mod graph;
mod hop;
mod network;
mod routing;
mod torus;

pub use dragonfly::Dragonfly;
pub use fat_tree::FatTree;
pub use graph::{Graph, GraphError};
pub use hop::{Hop, Link, Vertex};
pub use network::{LinkCost, Network, NetworkCost, Step};
pub use routing::{Flow, Routing};
pub use torus::Torus;

/// The vertices, the links, and a minimal route between any two vertices.
#[derive(Clone, Debug)]
pub enum Wiring {
    /// Levels of switches, each of which may be oversubscribed.
    FatTree(FatTree),
    /// Groups of routers, with a link between every two groups.
    Dragonfly(Dragonfly),
    /// A grid that wraps in every dimension, with one host per router.
    Torus(Torus),
    /// Anything that a topology file describes.
    Graph(Graph),
}

impl Wiring {
    /// The number of hosts; their vertices come first.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        match self {
            Self::FatTree(wiring) => wiring.hosts(),
            Self::Dragonfly(wiring) => wiring.hosts(),
            Self::Torus(wiring) => wiring.hosts(),
            Self::Graph(wiring) => wiring.hosts(),
        }
    }

    /// The number of hosts and switches.
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

    /// The switch of a host.
    #[must_use]
    pub fn switch_of(&self, host: Vertex) -> Vertex {
        let elsewhere = Vertex(u32::from(host.0 == 0));
        self.next(host, elsewhere).to
    }

    /// The next link on a shortest path from `at` to `to`, which must differ. It is always the same one,
    /// so packets between two vertices stay in order.
    #[must_use]
    #[inline]
    pub fn next(&self, at: Vertex, to: Vertex) -> Hop {
        debug_assert_ne!(at, to, "the packet has arrived");
        match self {
            Self::FatTree(wiring) => wiring.next(at, to),
            Self::Dragonfly(wiring) => wiring.next(at, to),
            Self::Torus(wiring) => wiring.next(at, to),
            Self::Graph(wiring) => wiring.next(at, to),
        }
    }

    /// The next link of a flow's packet at `at`.
    #[must_use]
    #[inline]
    pub fn next_of(&self, routing: Routing, flow: Flow, at: Vertex) -> Hop {
        match (self, routing) {
            (Self::FatTree(wiring), Routing::FlowHash) => wiring.next_of(flow, at),
            (Self::Graph(wiring), Routing::FlowHash) => wiring.next_of(flow, at),
            (Self::Dragonfly(wiring), Routing::Valiant) => {
                wiring.next_through_third_group(flow, at)
            }
            _ => self.next(at, flow.to),
        }
    }

    /// Every vertex on the path from `source` to `target`, both included.
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
