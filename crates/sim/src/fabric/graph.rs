//! Any fabric that a topology file describes.

mod routes;

use std::collections::BTreeMap;

use tributary_topology::{Fabric, VertexKind};

use super::hop::{Hop, Link, Vertex};
use super::routing::Flow;
use routes::{Routes, Switches};

/// Most hosts of a fabric from a file.
const HOSTS_MAX: usize = 1 << 20;

/// Most switches of a fabric from a file: every pair of them has a place in a table.
const SWITCHES_MAX: usize = 8192;

/// Most links of one switch.
const PORTS_MAX: usize = u16::MAX as usize;

/// The fabric can't be simulated: a mistake in the topology file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// No host, so nothing to simulate.
    #[error("the file has no host; list hosts at their switches")]
    NoHosts,
    /// A host without a link.
    #[error("host `{0}` is linked to no switch")]
    Unlinked(String),
    /// Two parts with no path between them.
    #[error("no path leads from `{from}` to `{to}`; link their switches")]
    Apart {
        /// One end.
        from: String,
        /// The other.
        to: String,
    },
    /// More than the simulator's tables hold.
    #[error("the file has {count} {what}; allowed: up to {max}")]
    TooMany {
        /// Of what there are too many.
        what: String,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
}

/// A fabric with routing tables.
#[derive(Clone, Debug)]
pub struct Graph {
    hosts: u32,
    names: Vec<String>,
    by_name: BTreeMap<String, Vertex>,
    /// The switch of each host: that of its first link. A switch is its own.
    switch_of: Vec<u32>,
    /// The place of each host among the links of its switch.
    port_of: Vec<u16>,
    /// Neighbours of each vertex and the first of its links.
    neighbours: Vec<Vec<u32>>,
    first_link: Vec<u32>,
    links: u32,
    routes: Routes,
}

impl Graph {
    /// Numbers hosts first, then switches, each in the order of the description, and finds every route.
    ///
    /// # Errors
    /// [`GraphError`]: every vertex must reach every other.
    pub fn new(fabric: &Fabric) -> Result<Self, GraphError> {
        let of_kind = |kind| fabric.vertices().filter(move |(_, vertex)| vertex.kind == kind);
        let order: Vec<_> = of_kind(VertexKind::Host).chain(of_kind(VertexKind::Switch)).collect();
        let hosts = of_kind(VertexKind::Host).count();
        if hosts == 0 {
            return Err(GraphError::NoHosts);
        }
        at_most("hosts", hosts, HOSTS_MAX)?;
        at_most("switches", order.len() - hosts, SWITCHES_MAX)?;
        let mut number = vec![0; order.len()];
        let position: BTreeMap<_, _> =
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
        hosts: usize,
        names: Vec<String>,
        neighbours: Vec<Vec<u32>>,
    ) -> Result<Self, GraphError> {
        let mut links = 0;
        let mut first_link = Vec::with_capacity(names.len());
        for (name, near) in names.iter().zip(&neighbours) {
            at_most(&format!("links at `{name}`"), near.len(), PORTS_MAX)?;
            first_link.push(links);
            links += near.len() as u32;
        }
        let mut switch_of = Vec::with_capacity(names.len());
        for (name, near) in names[..hosts].iter().zip(&neighbours) {
            switch_of.push(*near.first().ok_or_else(|| GraphError::Unlinked(name.clone()))?);
        }
        switch_of.extend(hosts as u32..names.len() as u32);
        let mut port_of = vec![0; hosts];
        for (switch, near) in neighbours.iter().enumerate().skip(hosts) {
            for (port, &to) in near.iter().enumerate() {
                if (to as usize) < hosts && switch_of[to as usize] == switch as u32 {
                    port_of[to as usize] = port as u16;
                }
            }
        }
        let routes = routes_among(hosts, &neighbours).map_err(|lost| {
            let (from, to) = (names[hosts].clone(), names[hosts + lost].clone());
            GraphError::Apart { from, to }
        })?;
        let hosts = hosts as u32;
        let by_name = names.iter().cloned().zip((0..).map(Vertex)).collect();
        Ok(Self {
            hosts,
            names,
            by_name,
            switch_of,
            port_of,
            neighbours,
            first_link,
            links,
            routes,
        })
    }

    /// The vertex of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Vertex> {
        self.by_name.get(name).copied()
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
        // Targets of one kind have neighbouring numbers, which the remainder spreads.
        let key = if to.0 < self.hosts { to.0 } else { to.0 - self.hosts };
        self.by_port(at, self.port(at, to, |at, goal| self.routes.port(at, goal, key)))
    }

    /// The same with a way that a hash of the flow chooses at each switch.
    pub(super) fn next_of(&self, flow: Flow, at: Vertex) -> Hop {
        let choose = |from: usize, goal| {
            let ports = self.routes.ports(from, goal);
            ports[flow.pick(at.0, ports.len() as u32) as usize]
        };
        self.by_port(at, self.port(at, flow.to, choose))
    }

    fn by_port(&self, at: Vertex, port: usize) -> Hop {
        let near = &self.neighbours[at.0 as usize];
        Hop { link: Link(self.first_link[at.0 as usize] + port as u32), to: Vertex(near[port]) }
    }

    /// The place of the next link among those of `at`, with a choice among those from one switch towards
    /// another.
    fn port(&self, at: Vertex, to: Vertex, choose: impl Fn(usize, usize) -> u16) -> usize {
        if at.0 < self.hosts {
            // A host uses the link to its switch.
            return 0;
        }
        let goal = self.switch_of[to.0 as usize];
        if goal == at.0 {
            return self.port_of[to.0 as usize].into();
        }
        choose((at.0 - self.hosts) as usize, (goal - self.hosts) as usize).into()
    }
}

fn routes_among(hosts: usize, neighbours: &[Vec<u32>]) -> Result<Routes, usize> {
    let switches = &neighbours[hosts..];
    let to_switches = |near: &Vec<u32>| {
        let ports = near.iter().enumerate().filter(|(_, to)| **to as usize >= hosts);
        ports.map(|(port, to)| (to - hosts as u32, port as u16)).collect()
    };
    let links: Vec<Vec<(u32, u16)>> = switches.iter().map(to_switches).collect();
    let have_hosts: Vec<bool> =
        switches.iter().map(|near| near.iter().any(|to| (*to as usize) < hosts)).collect();
    Routes::new(&Switches { links: &links, have_hosts: &have_hosts })
}

fn at_most(what: &str, count: usize, max: usize) -> Result<(), GraphError> {
    if count <= max {
        return Ok(());
    }
    Err(GraphError::TooMany { what: what.to_owned(), count, max })
}
