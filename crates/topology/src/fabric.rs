//! The graph of switches, hosts and links, with the aggregation nodes that a description places on it.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Longest name of a switch, a host or an aggregation node.
const NAME_BYTES_MAX: usize = 255;

/// Index of a vertex in its [`Fabric`], in the order in which vertices were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VertexId(pub(crate) u32);

impl VertexId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a vertex is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VertexKind {
    /// Forwards between its links.
    Switch,
    /// Runs processes. Never lies between two others on a path, even with several links.
    Host,
}

/// A switch or a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vertex {
    /// Unique in its fabric, among switches and hosts together.
    pub name: String,
    /// Switch or host.
    pub kind: VertexKind,
}

/// The description contradicts itself: a mistake in the topology file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// Names go into control messages, which carry no longer ones.
    #[error("a name has {0} bytes; allowed: 1 to {NAME_BYTES_MAX}")]
    NameLength(usize),
    /// A name may be given to one switch or host only.
    #[error("`{0}` is described twice; switches and hosts need names of their own")]
    VertexTwice(String),
    /// A name may be given to one aggregation node only.
    #[error("aggregation node `{0}` is described twice; each needs a name of its own")]
    AggregationNodeTwice(String),
    /// A link needs two ends.
    #[error("`{0}` is linked to itself; a link joins two different switches or hosts")]
    LinkToItself(String),
    /// A host is linked to switches only: two hosts with a cable between them have no place to
    /// aggregate.
    #[error("hosts `{0}` and `{1}` are linked; a link needs a switch at one end at least")]
    LinkBetweenHosts(String, String),
}

/// Switches, hosts, the links between them, and where aggregation nodes are attached.
///
/// Links have no direction, and parallel links count once, because only distances matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fabric {
    vertices: Vec<Vertex>,
    /// Neighbours of each vertex, ascending.
    links: Vec<Vec<VertexId>>,
    by_name: BTreeMap<String, VertexId>,
    aggregation_nodes: BTreeMap<String, VertexId>,
    root: Option<String>,
}

impl Fabric {
    /// An empty fabric, as without a topology file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a switch.
    ///
    /// # Errors
    /// [`FabricError::VertexTwice`], [`FabricError::NameLength`].
    pub fn add_switch(&mut self, name: &str) -> Result<VertexId, FabricError> {
        self.add_vertex(name, VertexKind::Switch)
    }

    /// Adds a host.
    ///
    /// # Errors
    /// [`FabricError::VertexTwice`], [`FabricError::NameLength`].
    pub fn add_host(&mut self, name: &str) -> Result<VertexId, FabricError> {
        self.add_vertex(name, VertexKind::Host)
    }

    /// Links two vertices of this fabric; linking them again changes nothing.
    ///
    /// # Errors
    /// [`FabricError::LinkToItself`], [`FabricError::LinkBetweenHosts`].
    ///
    /// # Panics
    /// If a vertex is of another fabric.
    pub fn add_link(&mut self, one: VertexId, other: VertexId) -> Result<(), FabricError> {
        let (first, second) = (self.vertex(one), self.vertex(other));
        if one == other {
            return Err(FabricError::LinkToItself(first.name.clone()));
        }
        if first.kind == VertexKind::Host && second.kind == VertexKind::Host {
            return Err(FabricError::LinkBetweenHosts(first.name.clone(), second.name.clone()));
        }
        for (from, to) in [(one, other), (other, one)] {
            let neighbours = &mut self.links[from.index()];
            if let Err(at) = neighbours.binary_search(&to) {
                neighbours.insert(at, to);
            }
        }
        Ok(())
    }

    /// Attaches the aggregation node `name`, once it runs, to `at`.
    ///
    /// # Errors
    /// [`FabricError::AggregationNodeTwice`], [`FabricError::NameLength`].
    ///
    /// # Panics
    /// If `at` is of another fabric.
    pub fn add_aggregation_node(&mut self, name: &str, at: VertexId) -> Result<(), FabricError> {
        assert!(at.index() < self.vertices.len(), "the vertex is of another fabric");
        check_name(name)?;
        if self.aggregation_nodes.contains_key(name) {
            return Err(FabricError::AggregationNodeTwice(name.to_string()));
        }
        self.aggregation_nodes.insert(name.to_string(), at);
        Ok(())
    }

    /// Makes the aggregation node `name` the root whenever it runs.
    pub fn prefer_root(&mut self, name: &str) {
        self.root = Some(name.to_string());
    }

    /// The aggregation node that the description prefers as the root.
    #[must_use]
    pub fn preferred_root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    /// The switch or host of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<VertexId> {
        self.by_name.get(name).copied()
    }

    /// One vertex.
    ///
    /// # Panics
    /// If it is of another fabric.
    #[must_use]
    pub fn vertex(&self, id: VertexId) -> &Vertex {
        &self.vertices[id.index()]
    }

    /// Every vertex, in the order in which they were added.
    pub fn vertices(&self) -> impl ExactSizeIterator<Item = (VertexId, &Vertex)> {
        self.vertices.iter().enumerate().map(|(index, vertex)| (vertex_id(index), vertex))
    }

    /// Neighbours of one vertex, ascending.
    ///
    /// # Panics
    /// If it is of another fabric.
    #[must_use]
    pub fn neighbours(&self, id: VertexId) -> &[VertexId] {
        &self.links[id.index()]
    }

    /// The aggregation nodes that the description places, by name.
    pub fn aggregation_nodes(&self) -> impl ExactSizeIterator<Item = (&str, VertexId)> {
        self.aggregation_nodes.iter().map(|(name, at)| (name.as_str(), *at))
    }

    /// Where the description places an aggregation node.
    #[must_use]
    pub fn aggregation_node(&self, name: &str) -> Option<VertexId> {
        self.aggregation_nodes.get(name).copied()
    }

    fn add_vertex(&mut self, name: &str, kind: VertexKind) -> Result<VertexId, FabricError> {
        check_name(name)?;
        if self.by_name.contains_key(name) {
            return Err(FabricError::VertexTwice(name.to_string()));
        }
        let id = vertex_id(self.vertices.len());
        self.by_name.insert(name.to_string(), id);
        self.vertices.push(Vertex { name: name.to_string(), kind });
        self.links.push(Vec::new());
        Ok(id)
    }
}

fn check_name(name: &str) -> Result<(), FabricError> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        bytes => Err(FabricError::NameLength(bytes)),
    }
}

fn vertex_id(index: usize) -> VertexId {
    VertexId(u32::try_from(index).expect("a fabric has fewer than 2^32 vertices"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_links_count_once_and_both_ways() {
        let mut fabric = Fabric::new();
        let switch = fabric.add_switch("s").unwrap();
        let host = fabric.add_host("h").unwrap();
        fabric.add_link(switch, host).unwrap();
        fabric.add_link(host, switch).unwrap();
        assert_eq!(fabric.neighbours(switch), [host]);
        assert_eq!(fabric.neighbours(host), [switch]);
    }

    #[test]
    fn names_that_no_message_carries_are_refused() {
        let mut fabric = Fabric::new();
        assert_eq!(fabric.add_switch(""), Err(FabricError::NameLength(0)));
        assert_eq!(fabric.add_host(&"h".repeat(256)), Err(FabricError::NameLength(256)));
        let switch = fabric.add_switch(&"s".repeat(255)).unwrap();
        assert_eq!(fabric.add_aggregation_node("", switch), Err(FabricError::NameLength(0)));
    }

    #[test]
    fn contradictions_are_refused() {
        let mut fabric = Fabric::new();
        let one = fabric.add_host("one").unwrap();
        let two = fabric.add_host("two").unwrap();
        assert_eq!(fabric.add_switch("one"), Err(FabricError::VertexTwice("one".into())));
        assert_eq!(fabric.add_link(one, one), Err(FabricError::LinkToItself("one".into())));
        assert_eq!(
            fabric.add_link(one, two),
            Err(FabricError::LinkBetweenHosts("one".into(), "two".into()))
        );
        fabric.add_aggregation_node("an", one).unwrap();
        assert_eq!(
            fabric.add_aggregation_node("an", two),
            Err(FabricError::AggregationNodeTwice("an".into()))
        );
    }
}
