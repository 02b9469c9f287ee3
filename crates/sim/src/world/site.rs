//! A site: its aggregation nodes, and the manager that grants groups on them.

use std::collections::BTreeMap;

use tributary_manager::{Caller, Manager, ManagerConfig};
use tributary_protocol::Time;
use tributary_protocol::endpoint::EndpointConfig;
use tributary_protocol::node::{ChildConfig, GroupConfig, NodeConfig, StreamConfig};
use tributary_topology::Fabric;
use tributary_wire::control::{
    GroupGrant, GroupInstall, GroupRequest, JobAdmission, JobRequest, NodeAddress, NodeEvent,
    NodeOrder, NodeRegistration,
};
use tributary_wire::frame::Versions;
use tributary_wire::{GroupId, NodeId};

use super::group::{Group, SetupError, Terms, Upward};
use super::ids::{AggregatorId, MemberId, ProcessId};
use super::payload::Data;
use super::state::World;

/// A manager, and the aggregation nodes by their numbers and addresses.
///
/// Messages between the manager and the aggregators take no time here, because benchmarks do not measure the
/// set-up of groups.
pub struct Site {
    manager: Manager,
    job: JobAdmission,
    aggregators: BTreeMap<NodeId, AggregatorId>,
    by_address: BTreeMap<String, AggregatorId>,
}

/// An aggregation node as the manager knows it.
#[derive(Clone, Debug)]
pub struct ManagedNode {
    /// Its name.
    pub name: String,
    /// The machine that it runs on: that of a host, or one of its own.
    pub machine: String,
    /// Which one it is.
    pub aggregator: AggregatorId,
}

impl Site {
    /// A manager of `fabric` with one job, whose groups may add up to `osos_per_job` outstanding
    /// operations.
    ///
    /// # Panics
    /// If two aggregators have one name.
    #[must_use]
    pub fn new(
        fabric: Fabric,
        nodes: &[ManagedNode],
        config: &NodeConfig,
        osos_per_job: Option<u32>,
    ) -> Self {
        let limits = ManagerConfig { osos_per_job_max: osos_per_job, ..ManagerConfig::default() };
        let mut manager = Manager::new(limits, fabric, [7; 32]);
        let mut aggregators = BTreeMap::new();
        let mut by_address = BTreeMap::new();
        for ManagedNode { name, machine, aggregator } in nodes {
            let address = NodeAddress { tcp: name.clone(), machine: machine.clone(), shm: None };
            let registration = NodeRegistration {
                name: name.clone(),
                address,
                radix: config.radix_max,
                osos: config.osos_max,
                payload_max_bytes: config.payload_max_bytes,
                frame_versions: config.frame_versions,
                stream: config.streams.capacity(),
                kernel: None,
            };
            let id = manager.register_node(registration).expect("a simulated node is in order");
            aggregators.insert(id, *aggregator);
            by_address.insert(name.clone(), *aggregator);
        }
        let request = JobRequest { name: "simulated".to_owned(), processes: 1, resume: None };
        let job = manager.admit_job(&Caller::Operator, request).expect("the only job is admitted");
        while manager.poll_order().is_some() {}
        Self { manager, job, aggregators, by_address }
    }
}

impl<D: Data> World<D> {
    /// Requests a group of `members`, each a process and its host's name in the manager's fabric, and
    /// sets it up if it is granted. Returns the members in the order of the request.
    ///
    /// # Errors
    /// [`SetupError::Refused`] if the manager or an aggregator of the tree refuses. The group then holds no
    /// resources.
    pub fn request_group(
        &mut self,
        site: &mut Site,
        members: &[(ProcessId, String)],
        terms: Terms,
    ) -> Result<Vec<MemberId>, SetupError> {
        let request = GroupRequest {
            secret: site.job.secret,
            label: "simulated".to_owned(),
            hosts: members.iter().map(|(_, host)| host.clone()).collect(),
            frame_versions: Versions::SPOKEN,
            osos: terms.osos,
            payload_max_bytes: terms.payload_max_bytes,
            stream: terms.stream,
            external_receiver: false,
        };
        site.manager.request_group(Time(0), &Caller::Operator, site.job.job, &request)?;
        loop {
            while let Some((node, order)) = site.manager.poll_order() {
                self.execute(site, node, order, terms.multicast)?;
            }
            if let Some((_, decision)) = site.manager.poll_decision() {
                let grant = decision?;
                let joined = members
                    .iter()
                    .zip(0..)
                    .map(|((process, _), index)| self.join_granted(site, &grant, index, *process));
                let joined = joined.collect();
                self.settle()?;
                return Ok(joined);
            }
        }
    }

    fn execute(
        &mut self,
        site: &mut Site,
        node: NodeId,
        order: NodeOrder,
        multicast: bool,
    ) -> Result<(), SetupError> {
        let NodeOrder::Install(install) = order else { return Ok(()) };
        let (group, epoch) = (install.group, install.epoch);
        self.open(group, multicast);
        let answer = match self.install_ordered(site, node, install) {
            Ok(()) => NodeEvent::Installed { group, epoch },
            Err(SetupError::Node { fault, .. }) => {
                NodeEvent::Refused { group, epoch, reason: fault.to_string() }
            }
            Err(other) => return Err(other),
        };
        let event = site.manager.handle_node_event(Time(0), node, answer);
        event.expect("a node answers the order it was given");
        Ok(())
    }

    /// Creates the entry of a group. Numbers are reused after their group has ended.
    fn open(&mut self, group: GroupId, multicast: bool) {
        let index = group.0 as usize;
        let to_address = self.has_listeners();
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, || Group::new(multicast, to_address));
        }
    }

    fn install_ordered(
        &mut self,
        site: &Site,
        node: NodeId,
        install: GroupInstall,
    ) -> Result<(), SetupError> {
        let children = install.children.iter().map(|child| ChildConfig {
            capability: child.capability,
            members: child.members_first..child.members_end,
            is_node: child.is_node,
        });
        let config = GroupConfig {
            group: install.group,
            epoch: install.epoch,
            frame_version: install.frame_version,
            osos: install.osos,
            payload_max_bytes: install.payload_max_bytes,
            children: children.collect(),
            parent: None,
            stream: install.stream.map(|of| StreamConfig { tree: of.tree, terms: of.terms }),
        };
        let upward = install.parent.map(|parent| Upward {
            parent: site.by_address[&parent.address.tcp],
            child: parent.child,
            capability: parent.capability,
        });
        self.install(site.aggregators[&node], config, upward)
    }

    fn join_granted(
        &mut self,
        site: &Site,
        grant: &GroupGrant,
        index: usize,
        process: ProcessId,
    ) -> MemberId {
        let place = &grant.endpoints[index];
        let config = EndpointConfig::of_grant(grant, place, super::group::OPERATIONS_MAX);
        self.join(process, site.by_address[&place.address.tcp], config)
    }
}
