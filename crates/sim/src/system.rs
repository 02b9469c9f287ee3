//! Builds a simulated system from a preset: a fabric with its aggregation nodes.
//!
//! Owns the placement of aggregation nodes in each kind of fabric. In small systems, the protocol's
//! manager places trees and grants groups. In large regular ones this module computes the same tree,
//! because the manager's search would take longer than the simulation.

mod layout;

use std::fs;

use tributary_protocol::node::{NodeConfig, StreamLimits};
use tributary_topology::Fabric;
use tributary_topology::readers::{self, Format};

use crate::fabric::{Dragonfly, FatTree, Graph, GraphError, Torus, Vertex, Wiring};
use crate::preset::{AggregationNodes, FabricShape, Preset};
use crate::world::{
    AggregatorId, Data, GroupPlan, MemberId, ProcessId, SetupError, Site, Terms, World,
};

pub use layout::Layout;

/// Groups a node may serve: more than any scenario has.
const GROUPS_MAX: u32 = 4096;

/// Most hosts for which the manager places the tree. For more, its search takes too long.
const MANAGED_HOSTS_MAX: u32 = 512;

/// Why a system could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemError {
    /// The topology file can't be read.
    #[error("topology `{path}`: {fault}")]
    File {
        /// Its path.
        path: String,
        /// The operating system's error.
        fault: std::io::Error,
    },
    /// The topology file is malformed.
    #[error("topology `{path}`: {fault}")]
    Topology {
        /// Its path.
        path: String,
        /// What is wrong, and where.
        fault: readers::ReadError,
    },
    /// The topology can't be simulated.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The scenario needs aggregation nodes and the preset has none.
    #[error("preset `{0}` has no aggregation nodes")]
    NoAggregation(String),
    /// More hosts are needed than the fabric has.
    #[error("{needed} hosts are needed, the fabric has {has}")]
    TooFewHosts {
        /// Hosts needed.
        needed: u32,
        /// Hosts of the fabric.
        has: u32,
    },
    /// A group could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// A system: the world, and the placement of its aggregation nodes.
pub struct System<D: Data> {
    /// Hosts, network and aggregation nodes.
    pub world: World<D>,
    layout: Option<Layout>,
    site: Option<Site>,
}

/// The fabric of a preset.
///
/// # Errors
/// [`SystemError`] if a topology file can't be had.
pub fn wiring(shape: &FabricShape) -> Result<Wiring, SystemError> {
    Ok(match shape {
        FabricShape::FatTree { down, up } => Wiring::FatTree(FatTree::new(down, up)),
        FabricShape::Dragonfly { groups, routers, hosts } => {
            Wiring::Dragonfly(Dragonfly::new(*groups, *routers, *hosts))
        }
        FabricShape::Torus { sizes } => Wiring::Torus(Torus::new(sizes)),
        FabricShape::Topology { .. } => Wiring::Graph(Graph::new(&topology(shape)?)?),
    })
}

fn topology(shape: &FabricShape) -> Result<Fabric, SystemError> {
    let FabricShape::Topology { file } = shape else {
        unreachable!("only a described fabric has a file")
    };
    let path = file.display().to_string();
    let text = fs::read_to_string(file)
        .map_err(|fault| SystemError::File { path: path.clone(), fault })?;
    readers::read(Format::detect(&text), &text)
        .map_err(|fault| SystemError::Topology { path, fault })
}

impl<D: Data> System<D> {
    /// An idle system. `osos_per_job` bounds the outstanding operations of the only job's groups.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn new(preset: &Preset, seed: u64, osos_per_job: Option<u32>) -> Result<Self, SystemError> {
        let wiring = wiring(&preset.fabric)?;
        let layout = match (&preset.aggregation, &wiring) {
            (None, _) => None,
            (Some(_), Wiring::Graph(graph)) => {
                Some(Layout::described(&topology(&preset.fabric)?, graph))
            }
            (Some(nodes), wiring) if nodes.on_hosts => {
                Some(Layout::regular(wiring).on_hosts(wiring))
            }
            (Some(_), wiring) => Some(Layout::regular(wiring)),
        };
        let mut world = World::new(preset, wiring, seed);
        let site = match (&preset.aggregation, &layout) {
            (Some(nodes), Some(layout)) => place(&mut world, nodes, layout, osos_per_job),
            _ => None,
        };
        Ok(Self { world, layout, site })
    }

    /// The number of hosts.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.world.network().wiring().hosts()
    }

    /// Forms a group of processes, each on its host. Members come in the order of `processes`.
    ///
    /// # Errors
    /// [`SystemError`]; [`SetupError::Refused`] within it if the manager refuses the grant.
    pub fn form(
        &mut self,
        processes: &[(ProcessId, Vertex)],
        terms: Terms,
    ) -> Result<Vec<MemberId>, SystemError> {
        let Some(layout) = &self.layout else {
            return Err(SystemError::NoAggregation("this one".to_owned()));
        };
        if let Some(site) = &mut self.site {
            let named: Vec<_> = processes
                .iter()
                .map(|&(process, host)| (process, layout.host_name(host)))
                .collect();
            return Ok(self.world.request_group(site, &named, terms)?);
        }
        let plan = layout.plan(processes);
        let members = self.world.form(&plan, terms)?;
        Ok(in_order_asked(processes, &plan, &members))
    }
}

/// Adds the layout's nodes to the world, and a manager where the system is small enough for one.
fn place<D: Data>(
    world: &mut World<D>,
    nodes: &AggregationNodes,
    layout: &Layout,
    osos_per_job: Option<u32>,
) -> Option<Site> {
    let config = NodeConfig {
        radix_max: nodes.radix.count() as u16,
        osos_max: nodes.osos.count(),
        groups_max: GROUPS_MAX,
        payload_max_bytes: nodes.payload_max.bytes() as u32,
        join_timeout_ns: 1_000_000_000,
        streams: StreamLimits::NONE,
    };
    let placed: Vec<AggregatorId> =
        layout.vertices().map(|vertex| world.add_aggregator(vertex, config)).collect();
    if world.network().wiring().hosts() > MANAGED_HOSTS_MAX {
        return None;
    }
    let named: Vec<_> = layout.node_names().zip(placed).collect();
    Some(Site::new(layout.fabric(world.network().wiring()), &named, &config, osos_per_job))
}

fn in_order_asked(
    processes: &[(ProcessId, Vertex)],
    plan: &GroupPlan,
    members: &[MemberId],
) -> Vec<MemberId> {
    let by_process: std::collections::HashMap<_, _> =
        plan.processes_in_order().zip(members.iter().copied()).collect();
    processes.iter().map(|(process, _)| by_process[process]).collect()
}
