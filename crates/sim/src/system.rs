//! Builds a simulated system from a preset: a fabric with its aggregation nodes.
//!
//! Owns the placement of aggregation nodes in each kind of fabric, and so which hosts are left for
//! processes. In small systems, the protocol's
//! manager places trees and grants groups. In large regular ones this module computes the same tree,
//! because the manager's search would take longer than the simulation.

mod error;
mod layout;
mod plan;

use tributary_protocol::StreamTerms;
use tributary_protocol::node::{NodeConfig, StreamLimits};
use tributary_wire::frame::Versions;

use crate::fabric::Vertex;
use crate::preset::{AggregationNodes, Preset};
use crate::world::{
    AggregatorId, Data, GroupPlan, ManagedNode, MemberId, ProcessId, Site, Terms, World,
};

pub use error::SystemError;
pub use layout::Layout;
pub use plan::{Nodes, SystemPlan};

/// Groups an aggregator may serve: more than any scenario has.
const GROUPS_MAX: u32 = 4096;

/// Most hosts for which the manager places the tree. For more, its search takes too long.
const MANAGED_HOSTS_MAX: u32 = 512;

/// A system: the world, and the placement of its aggregation nodes.
pub struct System<D: Data> {
    /// Hosts, network and aggregation nodes.
    pub world: World<D>,
    preset: String,
    compute_hosts: Vec<Vertex>,
    layout: Option<Layout>,
    site: Option<Site>,
}

/// The terms of a group on a preset's aggregation nodes.
///
/// # Errors
/// [`SystemError::NoAggregation`].
pub fn group_terms(preset: &Preset, multicast: bool) -> Result<Terms, SystemError> {
    let Some(nodes) = &preset.aggregation else {
        return Err(SystemError::NoAggregation(preset.name.clone()));
    };
    Ok(Terms {
        osos: nodes.osos.count().min(preset.tree.osos.count()) as u16,
        payload_max_bytes: nodes.payload_max.bytes() as u32,
        multicast,
        stream: None,
    })
}

impl<D: Data> System<D> {
    /// An idle system. `osos_per_job` bounds the outstanding operations of the only job's groups.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn new(preset: &Preset, seed: u64, osos_per_job: Option<u32>) -> Result<Self, SystemError> {
        Ok(Self::from_plan(preset, SystemPlan::new(preset)?, seed, osos_per_job))
    }

    /// The same with aggregators that can stream up to `terms`, in one tree.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn with_streams(
        preset: &Preset,
        seed: u64,
        osos_per_job: Option<u32>,
        terms: StreamTerms,
    ) -> Result<Self, SystemError> {
        let StreamTerms { chunk_bytes, window } = terms;
        let limits = StreamLimits { trees: 1, window_max: window, chunk_bytes_max: chunk_bytes };
        Ok(Self::build(preset, SystemPlan::new(preset)?, seed, osos_per_job, limits))
    }

    /// A system without streams, as planned before for this preset.
    #[must_use]
    pub fn from_plan(
        preset: &Preset,
        plan: SystemPlan,
        seed: u64,
        osos_per_job: Option<u32>,
    ) -> Self {
        Self::build(preset, plan, seed, osos_per_job, StreamLimits::NONE)
    }

    fn build(
        preset: &Preset,
        plan: SystemPlan,
        seed: u64,
        osos_per_job: Option<u32>,
        streams: StreamLimits,
    ) -> Self {
        let compute_hosts = plan.compute_hosts();
        let SystemPlan { wiring, layout } = plan;
        let mut world = World::new(preset, wiring, seed);
        let site = match (&preset.aggregation, &layout) {
            (Some(nodes), Some(layout)) => place(&mut world, nodes, layout, osos_per_job, streams),
            _ => None,
        };
        Self { world, preset: preset.name.clone(), compute_hosts, layout, site }
    }

    /// The hosts for processes: all, or those that run no aggregation node.
    #[must_use]
    pub fn compute_hosts(&self) -> &[Vertex] {
        &self.compute_hosts
    }

    /// Forms a group of processes, each on its host. Members come in the order of `processes`.
    ///
    /// # Errors
    /// [`SystemError`]; [`SetupError::Refused`](crate::world::SetupError::Refused) within it if the manager refuses the grant.
    pub fn form(
        &mut self,
        processes: &[(ProcessId, Vertex)],
        terms: Terms,
    ) -> Result<Vec<MemberId>, SystemError> {
        let Some(layout) = &self.layout else {
            return Err(SystemError::NoAggregation(self.preset.clone()));
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

/// Adds the layout's aggregators to the world, and a manager where the system is small enough for one.
fn place<D: Data>(
    world: &mut World<D>,
    nodes: &AggregationNodes,
    layout: &Layout,
    osos_per_job: Option<u32>,
    streams: StreamLimits,
) -> Option<Site> {
    let config = NodeConfig {
        frame_versions: Versions::SPOKEN,
        radix_max: nodes.radix.count() as u16,
        osos_max: nodes.osos.count(),
        groups_max: GROUPS_MAX,
        payload_max_bytes: nodes.payload_max.bytes() as u32,
        join_timeout_ns: 1_000_000_000,
        streams,
    };
    let placed: Vec<AggregatorId> =
        layout.vertices().map(|vertex| world.add_aggregator(vertex, config)).collect();
    if world.network().wiring().hosts() > MANAGED_HOSTS_MAX && !layout.is_managers() {
        return None;
    }
    let named: Vec<_> = layout
        .node_names()
        .zip(layout.node_machines())
        .zip(placed)
        .map(|((name, machine), aggregator)| ManagedNode { name, machine, aggregator })
        .collect();
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
