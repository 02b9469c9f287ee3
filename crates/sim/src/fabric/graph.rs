//! Any fabric that a topology file describes.

use std::collections::VecDeque;

use tributary_topology::{Fabric, VertexKind};

use super::hop::{Hop, Link, Vertex};

/// The fabric can't be simulated: a mistake in the topology file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A host without a link.
    #[error("host `{0}` is linked to no switch")]
    Unlinked(String),
    /// Two parts with no path between them.
    #[error("no path leads from `{from}` to `{to}`")]
    Apart {
        /// One end.
        from: String,
        /// The other.
        to: String,
    },
}

/// A fabric with routing tables: for each vertex and each switch, the first link of a shortest path.
#[derive(Clone, Debug)]
pub struct Graph {
    hosts: u32,
    names: Vec<String>,
    /// The switch of each host (its first link counts); a switch is its own.
    switch_of: Vec<u32>,
    /// Neighbours of each vertex and the first of its links.
    neighbours: Vec<Vec<u32>>,
    first_link: Vec<u32>,
    links: u32,
    /// `routes[switch * vertices + vertex]`: which neighbour of `vertex` comes next towards it.
    routes: Vec<u16>,
}

impl Graph {
    /// Numbers hosts first, then switches, each in the order of the description, and finds every route.
    ///
    /// # Errors
    /// [`GraphError`]: every vertex must reach every other.
    pub fn new(fabric: &Fabric) -> Result<Self, GraphError> {
        let of_kind = |kind| fabric.vertices().filter(move |(_, vertex)| vertex.kind == kind);
        let order: Vec<_> = of_kind(VertexKind::Host).chain(of_kind(VertexKind::Switch)).collect();
        let hosts = of_kind(VertexKind::Host).count() as u32;
        let mut number = vec![0; order.len()];
        let position: std::collections::BTreeMap<_, _> =
            fabric.vertices().enumerate().map(|(index, (id, _))| (id, index)).collect();
        for (new, (id, _)) in order.iter().enumerate() {
            number[position[id]] = new as u32;
        }
        let neighbours: Vec<Vec<u32>> = order
            .iter()
            .map(|(id, _)| fabric.neighbours(*id).iter().map(|to| number[position[to]]).collect())
            .collect();
        let names = order.iter().map(|(_, vertex)| vertex.name.clone()).collect();
        Self::from_parts(hosts, names, neighbours)
    }

    fn from_parts(
        hosts: u32,
        names: Vec<String>,
        neighbours: Vec<Vec<u32>>,
    ) -> Result<Self, GraphError> {
        let mut links = 0;
        let first_link = neighbours
            .iter()
            .map(|near| {
                let first = links;
                links += near.len() as u32;
                first
            })
            .collect();
        let mut switch_of = Vec::with_capacity(names.len());
        for (vertex, near) in neighbours.iter().enumerate() {
            let switch =
                if vertex < hosts as usize { near.first().copied() } else { Some(vertex as u32) };
            switch_of.push(switch.ok_or_else(|| GraphError::Unlinked(names[vertex].clone()))?);
        }
        let mut graph =
            Self { hosts, names, switch_of, neighbours, first_link, links, routes: Vec::new() };
        graph.find_routes()?;
        Ok(graph)
    }

    fn find_routes(&mut self) -> Result<(), GraphError> {
        let vertices = self.names.len();
        for target in self.hosts as usize..vertices {
            let mut next = vec![u16::MAX; vertices];
            let mut seen = vec![false; vertices];
            seen[target] = true;
            let mut frontier = VecDeque::from([target]);
            while let Some(at) = frontier.pop_front() {
                for &before in &self.neighbours[at] {
                    let from = before as usize;
                    if seen[from] || (from >= self.hosts as usize && at < self.hosts as usize) {
                        continue;
                    }
                    seen[from] = true;
                    let port = self.neighbours[from].iter().position(|&to| to as usize == at);
                    next[from] = port.expect("links have both directions") as u16;
                    if from >= self.hosts as usize {
                        frontier.push_back(from);
                    }
                }
            }
            if let Some(lost) = seen.iter().position(|seen| !seen) {
                let (from, to) = (self.names[lost].clone(), self.names[target].clone());
                return Err(GraphError::Apart { from, to });
            }
            self.routes.extend(next);
        }
        Ok(())
    }

    /// The vertex of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Vertex> {
        self.names.iter().position(|known| known == name).map(|index| Vertex(index as u32))
    }

    /// The name of a vertex.
    ///
    /// # Panics
    /// If there is no such vertex.
    #[must_use]
    pub fn name(&self, vertex: Vertex) -> &str {
        &self.names[vertex.0 as usize]
    }

    pub(super) fn hosts(&self) -> u32 {
        self.hosts
    }

    pub(super) fn vertices(&self) -> u32 {
        self.names.len() as u32
    }

    pub(super) fn links(&self) -> u32 {
        self.links
    }

    pub(super) fn next(&self, at: Vertex, to: Vertex) -> Hop {
        let goal = self.switch_of[to.0 as usize];
        let near = &self.neighbours[at.0 as usize];
        let port = if goal == at.0 {
            near.iter().position(|&vertex| vertex == to.0).expect("a host is linked to its switch")
        } else {
            let row = (goal - self.hosts) as usize * self.names.len();
            usize::from(self.routes[row + at.0 as usize])
        };
        Hop { link: Link(self.first_link[at.0 as usize] + port as u32), to: Vertex(near[port]) }
    }
}
