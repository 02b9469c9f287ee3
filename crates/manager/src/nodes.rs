//! Living aggregation nodes, and how much of each is in use.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use tributary_topology::{AggregationNode, GroupNode, GroupTree};
use tributary_wire::control::{KernelState, NodeRegistration, StreamCapacity};
use tributary_wire::frame::{Version, Versions};
use tributary_wire::{Datatype, NodeId, StreamTerms};

use super::config::{KERNEL_INTERFACES_MAX, ManagerConfig, TEXT_MAX_BYTES};
use super::error::{GroupError, RegisterError};

/// Shortest segment that holds an element of every datatype.
pub(super) const PAYLOAD_MIN_BYTES: u32 = Datatype::SIZE_BYTES_MAX as u32;

pub(super) struct LivingNode {
    pub(super) registration: NodeRegistration,
    pub(super) osos_used: u32,
    /// It is about to be stopped, and gets no groups.
    pub(super) is_draining: bool,
}

#[derive(Default)]
pub(super) struct NodeTable {
    nodes: BTreeMap<NodeId, LivingNode>,
    by_name: BTreeMap<String, NodeId>,
    next: u32,
}

impl NodeTable {
    pub(super) fn add(
        &mut self,
        config: &ManagerConfig,
        registration: NodeRegistration,
    ) -> Result<NodeId, RegisterError> {
        check_registration(&registration)?;
        if self.by_name.contains_key(&registration.name) {
            return Err(RegisterError::NameTaken { name: registration.name });
        }
        if self.nodes.len() >= config.nodes_max as usize {
            return Err(RegisterError::TooManyNodes { max: config.nodes_max });
        }
        // Numbers wrap after 2^32 registrations; those of living aggregators are skipped.
        while self.nodes.contains_key(&NodeId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let node = NodeId(self.next);
        self.next = self.next.wrapping_add(1);
        self.by_name.insert(registration.name.clone(), node);
        self.nodes.insert(node, LivingNode { registration, osos_used: 0, is_draining: false });
        Ok(node)
    }

    /// The name of the aggregator that was there.
    pub(super) fn remove(&mut self, node: NodeId) -> Option<String> {
        let name = self.nodes.remove(&node)?.registration.name;
        self.by_name.remove(&name);
        Some(name)
    }

    /// Gives a living aggregator no more groups.
    pub(super) fn drain(&mut self, name: &str) -> Option<NodeId> {
        let node = *self.by_name.get(name)?;
        self.nodes.get_mut(&node)?.is_draining = true;
        Some(node)
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// An aggregator of a tree that was placed over this table.
    pub(super) fn node_named(&self, name: &str) -> (NodeId, &NodeRegistration) {
        let node = self.by_name[name];
        (node, &self.nodes[&node].registration)
    }

    pub(super) fn name(&self, node: NodeId) -> &str {
        &self.nodes[&node].registration.name
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &LivingNode)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    pub(super) fn for_placement(&self) -> Vec<AggregationNode> {
        self.nodes
            .values()
            .filter(|node| !node.is_draining)
            .map(|LivingNode { registration, .. }| AggregationNode {
                name: registration.name.clone(),
                machine: registration.address.machine.clone(),
                radix: registration.radix,
            })
            .collect()
    }

    /// The longest segment, up to `wanted_bytes`, that all aggregators of `tree` hold.
    pub(super) fn payload_max_bytes(&self, tree: &GroupTree, wanted_bytes: u32) -> u32 {
        let held = |part: &GroupNode| self.node_named(&part.name).1.payload_max_bytes;
        tree.nodes().iter().map(held).fold(wanted_bytes, u32::min)
    }

    /// The newest version of frames that a job and all aggregators of `tree` speak.
    pub(super) fn frame_version(
        &self,
        tree: &GroupTree,
        of_job: Versions,
    ) -> Result<Version, GroupError> {
        let mut common = of_job;
        for part in tree.nodes() {
            let spoken = self.node_named(&part.name).1.frame_versions;
            common = common.common(spoken).ok_or_else(|| GroupError::NoCommonVersion {
                node: part.name.clone(),
                spoken,
                others: common,
            })?;
        }
        Ok(common.newest)
    }

    /// What every aggregator of `tree` can stream, no wider than wanted; none if one of them can't.
    pub(super) fn stream_capacity(
        &self,
        tree: &GroupTree,
        wanted: StreamTerms,
    ) -> Option<StreamCapacity> {
        let everything = StreamCapacity { trees: u16::MAX, terms_max: wanted };
        let narrowed = tree.nodes().iter().try_fold(everything, |least, part| {
            let has = self.nodes[&self.by_name[&part.name]].registration.stream?;
            let terms_max = StreamTerms {
                chunk_bytes: least.terms_max.chunk_bytes.min(has.terms_max.chunk_bytes),
                window: least.terms_max.window.min(has.terms_max.window),
            };
            Some(StreamCapacity { trees: least.trees.min(has.trees), terms_max })
        })?;
        let terms = narrowed.terms_max;
        (terms.chunk_bytes >= PAYLOAD_MIN_BYTES && terms.window > 0).then_some(narrowed)
    }

    /// What a living aggregator has to spare.
    pub(super) fn osos_free(&self, node: NodeId) -> u32 {
        let living = &self.nodes[&node];
        living.registration.osos - living.osos_used
    }

    /// Takes `osos` of a living aggregator that has them.
    pub(super) fn reserve(&mut self, node: NodeId, osos: u16) {
        let living = self.nodes.get_mut(&node).expect("groups are planned on living nodes");
        living.osos_used += u32::from(osos);
        assert!(living.osos_used <= living.registration.osos, "admission checked the capacity");
    }

    /// Frees `osos` of an aggregator, unless it is dead.
    pub(super) fn release(&mut self, node: NodeId, osos: u16) {
        if let Some(living) = self.nodes.get_mut(&node) {
            living.osos_used = living
                .osos_used
                .checked_sub(u32::from(osos))
                .expect("only what was reserved is released");
        }
    }
}

fn check_registration(registration: &NodeRegistration) -> Result<(), RegisterError> {
    let address = &registration.address;
    let mut texts = Vec::from([
        ("name", &registration.name),
        ("machine", &address.machine),
        ("tcp address", &address.tcp),
    ]);
    texts.extend(address.shm.as_ref().map(|path| ("shm path", path)));
    match &registration.kernel {
        None | Some(KernelState::Off) => {}
        Some(KernelState::Unavailable(reason)) => {
            texts.push(("reason against a kernel path", reason));
        }
        Some(KernelState::At(interfaces)) => {
            let (got, max) = (interfaces.len(), KERNEL_INTERFACES_MAX);
            if got > max {
                return Err(RegisterError::TooManyInterfaces { got, max });
            }
            texts.extend(interfaces.iter().map(|interface| ("interface", interface)));
        }
    }
    let versions = registration.frame_versions;
    if versions.oldest > versions.newest {
        return Err(RegisterError::NoVersion { versions });
    }
    for (field, text) in texts {
        if !(1..=TEXT_MAX_BYTES).contains(&text.len()) {
            let (got_bytes, max_bytes) = (text.len(), TEXT_MAX_BYTES);
            return Err(RegisterError::Text { field, got_bytes, max_bytes });
        }
    }
    let capacities = [
        ("radix", u32::from(registration.radix), 1),
        ("outstanding operations", registration.osos, 1),
        ("payload bytes", registration.payload_max_bytes, PAYLOAD_MIN_BYTES),
    ];
    match capacities.into_iter().find(|(_, got, min)| got < min) {
        Some((field, got, min)) => Err(RegisterError::Capacity { field, got, min }),
        None => Ok(()),
    }
}
