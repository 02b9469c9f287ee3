//! A system before it is made: its fabric, and where its aggregation nodes are.

use std::fs;

use tributary_topology::Fabric;
use tributary_topology::readers::{self, Format};

use super::error::SystemError;
use super::layout::Layout;
use crate::fabric::{Dragonfly, FatTree, Graph, Routing, Torus, Vertex, Wiring};
use crate::preset::{AggregationNodes, FabricShape, Preset};

/// The fabric of a preset with its routes, and the places of its aggregation nodes.
#[derive(Clone, Debug)]
pub struct SystemPlan {
    pub(super) wiring: Wiring,
    pub(super) layout: Option<Layout>,
}

impl SystemPlan {
    /// Plans the system of a preset. Reads the topology file, if the preset names one.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn new(preset: &Preset) -> Result<Self, SystemError> {
        let (wiring, layout) = place_aggregators(preset)?;
        Self::complete(preset, wiring, layout)
    }

    /// The same without the aggregation nodes of the lowest `levels` levels, whose children go to the next
    /// aggregator above; none if no aggregator would be left, or there are none.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn without_lowest(preset: &Preset, levels: u32) -> Result<Option<Self>, SystemError> {
        let (wiring, layout) = place_aggregators(preset)?;
        match layout.and_then(|layout| layout.without_lowest(levels)) {
            Some(layout) => Ok(Some(Self::complete(preset, wiring, Some(layout))?)),
            None => Ok(None),
        }
    }

    /// Puts the aggregators into switches or on hosts.
    fn complete(
        preset: &Preset,
        wiring: Wiring,
        layout: Option<Layout>,
    ) -> Result<Self, SystemError> {
        let layout = match (layout, &preset.aggregation, &wiring) {
            (Some(layout), _, _) if layout.is_beside_ranks() => Some(layout),
            (Some(layout), Some(nodes), _) if nodes.on_hosts => Some(layout.on_hosts()?),
            (Some(layout), _, Wiring::Graph(graph)) => Some(layout.in_switches(graph)?),
            (layout, _, _) => layout,
        };
        Ok(Self { wiring, layout })
    }

    /// Where the aggregation nodes are.
    #[must_use]
    pub fn nodes(&self) -> Nodes {
        let hosts = self.wiring.hosts();
        let vertices: Vec<Vertex> = self.layout.iter().flat_map(Layout::vertices).collect();
        let on_hosts = vertices.iter().filter(|vertex| vertex.0 < hosts).count();
        let names = self.layout.iter().flat_map(Layout::node_names);
        Nodes { in_switches: vertices.len() - on_hosts, on_hosts, names: names.collect() }
    }

    /// Plans a system on the fabric of a topology file, whatever the preset's own is. `path` is for
    /// errors.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn describe_fabric(preset: &Preset, path: &str, text: &str) -> Result<Self, SystemError> {
        let (wiring, layout) = describe_fabric(preset, path, text)?;
        Self::complete(preset, wiring, layout)
    }

    /// Hosts and switches of the fabric.
    #[must_use]
    pub fn vertices(&self) -> usize {
        self.wiring.vertices() as usize
    }

    /// The hosts for processes: all, or those that run no aggregation node.
    #[must_use]
    pub fn compute_hosts(&self) -> Vec<Vertex> {
        let mut is_free = vec![true; self.wiring.hosts() as usize];
        let excluding = self.layout.iter().filter(|layout| !layout.is_beside_ranks());
        for vertex in excluding.flat_map(Layout::vertices) {
            if let Some(is_free) = is_free.get_mut(vertex.0 as usize) {
                *is_free = false;
            }
        }
        let hosts = (0..).map(Vertex).zip(is_free);
        hosts.filter_map(|(host, is_free)| is_free.then_some(host)).collect()
    }
}

/// Where the aggregation nodes of a system are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// How many are in switches.
    pub in_switches: usize,
    /// How many are on hosts.
    pub on_hosts: usize,
    /// What they are called: by the topology file, or by the numbers of their switches.
    pub names: Vec<String>,
}

/// The fabric of a preset, and where the switches are that may have aggregators; none without aggregators.
fn place_aggregators(preset: &Preset) -> Result<(Wiring, Option<Layout>), SystemError> {
    let wiring = match &preset.fabric {
        FabricShape::FatTree { down, up } => Wiring::FatTree(FatTree::new(down, up)),
        FabricShape::Dragonfly { groups, routers, hosts } => {
            Wiring::Dragonfly(Dragonfly::new(*groups, *routers, *hosts))
        }
        FabricShape::Torus { sizes } => Wiring::Torus(Torus::new(sizes)),
        FabricShape::Topology { file } => {
            let path = file.display().to_string();
            let text = fs::read_to_string(file)
                .map_err(|fault| SystemError::File { path: path.clone(), fault })?;
            return describe_fabric(preset, &path, &text);
        }
    };
    let layout = match &preset.aggregation {
        None => None,
        Some(AggregationNodes { beside_ranks: Some(beside), .. }) => {
            Some(Layout::beside_ranks(wiring.hosts(), beside)?)
        }
        Some(_) => Some(Layout::regular(&wiring)),
    };
    Ok((wiring, layout))
}

fn describe_fabric(
    preset: &Preset,
    path: &str,
    text: &str,
) -> Result<(Wiring, Option<Layout>), SystemError> {
    let path = || path.to_owned();
    let fabric: Fabric = readers::read(Format::detect(text), text)
        .map_err(|fault| SystemError::Topology { path: path(), fault })?;
    let graph = Graph::new(&fabric).map_err(|fault| SystemError::Graph { path: path(), fault })?;
    if preset.routing == Routing::Valiant {
        return Err(SystemError::NoGroups { path: path() });
    }
    let layout = match &preset.aggregation {
        None => None,
        Some(AggregationNodes { beside_ranks: Some(beside), .. }) => {
            Some(Layout::describe_beside_ranks(&fabric, &graph, beside)?)
        }
        Some(_) => Some(Layout::describe_fabric(&fabric, &graph)),
    };
    Ok((Wiring::Graph(graph), layout))
}
