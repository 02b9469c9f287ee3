//! The messages to a group's aggregators and endpoints: numbers, addresses, capabilities.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tributary_topology::{GroupChild, GroupTree};
use tributary_wire::control::{
    ChildGrant, EndpointGrant, ExternalReceiverGrant, GroupGrant, GroupInstall, GroupKeys,
    GroupRecord, GroupRequest, KernelState, MulticastGrant, NodeAddress, ParentGrant,
    StreamInstall,
};
use tributary_wire::frame::Version;
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId};

use super::config::{ManagerConfig, TEXT_MAX_BYTES};
use super::error::GroupError;
use super::nodes::{NodeTable, PAYLOAD_MIN_BYTES};
use super::secrets::Secrets;

/// What all parts of a group agree on.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) group: GroupId,
    pub(super) epoch: Epoch,
    pub(super) frame_version: Version,
    pub(super) osos: u16,
    pub(super) payload_max_bytes: u32,
    pub(super) stream: Option<StreamInstall>,
}

/// All messages about a group that is admitted.
pub(super) struct Plan {
    terms: Terms,
    /// One per aggregator, root first and level by level.
    pub(super) installs: Vec<GroupInstall>,
    /// For the job, once the aggregators have installed it.
    pub(super) grant: GroupGrant,
}

impl Plan {
    /// Draws a capability for every child of every aggregator, and writes out both sides' parts.
    pub(super) fn draw(
        terms: Terms,
        tree: &GroupTree,
        nodes: &NodeTable,
        config: &ManagerConfig,
        has_external_receiver: bool,
        records: Vec<GroupRecord>,
        secrets: &mut Secrets,
    ) -> Self {
        let draft = Draft {
            terms,
            tree,
            nodes,
            records,
            root: (0..tree.nodes().len())
                .find(|node| tree.nodes()[*node].parent.is_none())
                .expect("a tree has a root"),
            external_receiver: has_external_receiver.then(|| secrets.draw()),
            keys: config.authenticates_frames.then(|| GroupKeys {
                group: secrets.draw_key(),
                external_receiver: has_external_receiver.then(|| secrets.draw_key()),
            }),
            multicast: config.multicast.as_ref().and_then(|range| {
                Some(MulticastGrant {
                    address: range.address(terms.group)?.to_string(),
                    capability: secrets.draw(),
                })
            }),
            capabilities: tree
                .nodes()
                .iter()
                .map(|part| part.children.iter().map(|_| secrets.draw()).collect())
                .collect(),
        };
        let installs = (0..tree.nodes().len()).map(|node| draft.install(node)).collect();
        Self { terms, installs, grant: draft.grant() }
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }
}

/// Values drawn for a group, from which each party's part is written.
struct Draft<'a> {
    terms: Terms,
    tree: &'a GroupTree,
    nodes: &'a NodeTable,
    /// By aggregator.
    records: Vec<GroupRecord>,
    /// The root's place among the tree's aggregators.
    root: usize,
    /// The external receiver's capability at the root.
    external_receiver: Option<Capability>,
    keys: Option<GroupKeys>,
    multicast: Option<MulticastGrant>,
    /// By aggregator, then by child.
    capabilities: Vec<Vec<Capability>>,
}

impl Draft<'_> {
    fn address(&self, node: usize) -> NodeAddress {
        self.nodes.node_named(&self.tree.nodes()[node].name).1.address.clone()
    }

    fn capability(&self, node: usize, child: ChildIndex) -> Capability {
        self.capabilities[node][usize::from(child.0)]
    }

    /// Whether all aggregators take the group's short segments inside the kernel.
    fn is_in_kernel(&self) -> bool {
        let fits = self.keys.is_none() && self.terms.osos <= KernelState::OSOS_MAX;
        fits && self.tree.nodes().iter().all(|part| {
            let state = &self.nodes.node_named(&part.name).1.kernel;
            part.children.len() <= KernelState::CHILDREN_MAX
                && matches!(state, Some(KernelState::At(_)))
        })
    }

    /// An aggregator's part.
    fn install(&self, node: usize) -> GroupInstall {
        let Terms { group, epoch, frame_version, osos, payload_max_bytes, stream } = self.terms;
        let is_root = node == self.root;
        GroupInstall {
            group,
            epoch,
            frame_version,
            osos,
            payload_max_bytes,
            children: children(self.tree, node, &self.capabilities[node]),
            parent: self.tree.nodes()[node].parent.map(|place| ParentGrant {
                address: self.address(place.node),
                child: place.child,
                capability: self.capability(place.node, place.child),
            }),
            multicast: self.multicast.clone(),
            stream,
            external_receiver: self.external_receiver.filter(|_| is_root),
            keys: self.keys.map(|keys| GroupKeys {
                external_receiver: keys.external_receiver.filter(|_| is_root),
                ..keys
            }),
            record: Some(self.records[node].clone()),
        }
    }

    /// The members' part.
    fn grant(&self) -> GroupGrant {
        let Terms { group, epoch, frame_version, osos, payload_max_bytes, stream } = self.terms;
        let endpoints = self.tree.endpoints().iter().map(|place| EndpointGrant {
            endpoint: place.endpoint,
            address: self.address(place.node),
            child: place.child,
            capability: self.capability(place.node, place.child),
        });
        GroupGrant {
            group,
            epoch,
            frame_version,
            osos,
            payload_max_bytes,
            stream: stream.map(|stream| stream.terms),
            in_kernel: self.is_in_kernel(),
            endpoints: endpoints.collect(),
            multicast: self.multicast.clone(),
            external_receiver: self.external_receiver.map(|capability| {
                Box::new(ExternalReceiverGrant {
                    group,
                    epoch,
                    frame_version,
                    address: self.address(self.root),
                    capability,
                    payload_max_bytes,
                    key: self.keys.and_then(|keys| keys.external_receiver),
                })
            }),
            key: self.keys.map(|keys| keys.group),
        }
    }
}

fn children(tree: &GroupTree, node: usize, capabilities: &[Capability]) -> Vec<ChildGrant> {
    let is_node = |child: &GroupChild| matches!(child, GroupChild::Node(_));
    #[cfg(feature = "planted-bugs")]
    let is_node = |child: &GroupChild| is_node(child) && !is_unnamed(child);
    let members = |child: &GroupChild| match *child {
        GroupChild::Node(below) => tree.nodes()[below].members.clone(),
        GroupChild::Endpoint { endpoint, .. } => endpoint.0..endpoint.0 + 1,
    };
    tree.nodes()[node]
        .children
        .iter()
        .zip(capabilities)
        .map(|(child, &capability)| ChildGrant {
            capability,
            members_first: EndpointId(members(child).start),
            members_end: EndpointId(members(child).end),
            is_node: is_node(child),
        })
        .collect()
}

/// One of the bugs that the swarm has to find.
#[cfg(feature = "planted-bugs")]
fn is_unnamed(child: &GroupChild) -> bool {
    use tributary_protocol::planted::{Bug, is_planted};
    matches!(child, GroupChild::Node(below) if *below >= 6) && is_planted(Bug::FewNodesNamed)
}

/// Bounds that hold for every request, whatever the fabric.
pub(super) fn check_request(
    config: &ManagerConfig,
    request: &GroupRequest,
) -> Result<(), GroupError> {
    let text_max = TEXT_MAX_BYTES as u64;
    let longest_host = request.hosts.iter().map(String::len).max().unwrap_or(0) as u64;
    let shortest_host = request.hosts.iter().map(String::len).min().unwrap_or(1) as u64;
    let bounds = [
        ("number of hosts", request.hosts.len() as u64, 1, u64::from(config.endpoints_max)),
        ("longest host name in bytes", longest_host, 1, text_max),
        ("shortest host name in bytes", shortest_host, 1, text_max),
        ("label length in bytes", request.label.len() as u64, 0, text_max),
        ("osos", u64::from(request.osos), 1, u64::from(u16::MAX)),
        (
            "payload_max_bytes",
            u64::from(request.payload_max_bytes),
            u64::from(PAYLOAD_MIN_BYTES),
            u64::from(u32::MAX),
        ),
    ];
    match bounds.into_iter().find(|(_, got, min, max)| !(min..=max).contains(&got)) {
        Some((field, got, min, max)) => Err(GroupError::OutOfBounds { field, got, min, max }),
        None => Ok(()),
    }
}
