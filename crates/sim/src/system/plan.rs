//! A system before it is made: its fabric, and where its aggregation nodes are.

use std::fs;

use tributary_topology::Fabric;
use tributary_topology::readers::{self, Format};

use super::{Layout, SystemError};
use crate::fabric::{Dragonfly, FatTree, Graph, Torus, Vertex, Wiring};
use crate::preset::{FabricShape, Preset};

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
        match &preset.fabric {
            FabricShape::FatTree { down, up } => {
                Self::regular(preset, Wiring::FatTree(FatTree::new(down, up)))
            }
            FabricShape::Dragonfly { groups, routers, hosts } => {
                let fabric = Dragonfly::new(*groups, *routers, *hosts);
                Self::regular(preset, Wiring::Dragonfly(fabric))
            }
            FabricShape::Torus { sizes } => Self::regular(preset, Wiring::Torus(Torus::new(sizes))),
            FabricShape::Topology { file } => {
                let path = file.display().to_string();
                let text = fs::read_to_string(file)
                    .map_err(|fault| SystemError::File { path: path.clone(), fault })?;
                Self::described(preset, &path, &text)
            }
        }
    }

    /// Plans a system on the fabric of a topology file, whatever the preset's own is. `path` is for
    /// errors.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn described(preset: &Preset, path: &str, text: &str) -> Result<Self, SystemError> {
        let path = || path.to_owned();
        let fabric: Fabric = readers::read(Format::detect(text), text)
            .map_err(|fault| SystemError::Topology { path: path(), fault })?;
        let graph =
            Graph::new(&fabric).map_err(|fault| SystemError::Graph { path: path(), fault })?;
        let layout = match &preset.aggregation {
            None => None,
            Some(nodes) if nodes.on_hosts => Some(Layout::described(&fabric, &graph).on_hosts()?),
            Some(_) => Some(Layout::described(&fabric, &graph).in_switches(&graph)?),
        };
        Ok(Self { wiring: Wiring::Graph(graph), layout })
    }

    fn regular(preset: &Preset, wiring: Wiring) -> Result<Self, SystemError> {
        let layout = match &preset.aggregation {
            None => None,
            Some(nodes) if nodes.on_hosts => Some(Layout::regular(&wiring).on_hosts()?),
            Some(_) => Some(Layout::regular(&wiring)),
        };
        Ok(Self { wiring, layout })
    }

    /// Hosts and switches of the fabric.
    #[must_use]
    pub fn vertices(&self) -> usize {
        self.wiring.vertices() as usize
    }

    /// The hosts for processes: those that run no aggregation node.
    #[must_use]
    pub fn compute_hosts(&self) -> Vec<Vertex> {
        let mut is_free = vec![true; self.wiring.hosts() as usize];
        for vertex in self.layout.iter().flat_map(Layout::vertices) {
            if let Some(is_free) = is_free.get_mut(vertex.0 as usize) {
                *is_free = false;
            }
        }
        let hosts = (0..).map(Vertex).zip(is_free);
        hosts.filter_map(|(host, is_free)| is_free.then_some(host)).collect()
    }
}
